package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// The library's own package for settings is not used: it links four services for
// signing on, which cost 3 ms at every start of the program, whatever the command.
// This is the part of it that a backup needs: variables, the two shared files
// (https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html), containers
// and instances.

type settings struct {
	region      string
	endpoint    *string
	pathStyle   bool
	credentials aws.CredentialsProvider
	client      *http.Client
}

func settingsOf(o Options) (*settings, error) {
	p, err := readProfile(o)
	if err != nil {
		return nil, err
	}
	s := &settings{region: cmp.Or(o.Region, o.Getenv("AWS_REGION"), o.Getenv("AWS_DEFAULT_REGION"), p.value["region"], "us-east-1")}
	if e := cmp.Or(o.Endpoint, o.Getenv("AWS_ENDPOINT_URL_S3"), o.Getenv("AWS_ENDPOINT_URL"), p.value["endpoint_url"]); e != "" {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return nil, errText("the endpoint is not a URL such as https://host:port")
		case u.User != nil:
			return nil, errText("the endpoint has a user in it: credentials go into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
		}
		s.endpoint = &e
	}
	switch how := cmp.Or(o.Addressing, p.value["s3.addressing_style"]); how {
	case "", "auto":
		s.pathStyle = s.endpoint != nil
	case "path":
		s.pathStyle = true
	case "virtual":
	default:
		return nil, fmt.Errorf("addressing %q is neither path nor virtual", how)
	}
	s.client, err = httpClient(cmp.Or(o.CAFile, o.Getenv("AWS_CA_BUNDLE"), p.value["ca_bundle"]), cmp.Or(o.Stall, 2*time.Minute))
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	provider, err := p.credentials(o)
	if err != nil {
		return nil, err
	}
	s.credentials = aws.NewCredentialsCache(provider)
	return s, nil
}

// profile is what the shared files say under one name. Settings of the nested
// section s3 are called "s3.…".
type profile struct {
	name  string
	value map[string]string
	files []string // that were looked at
}

func readProfile(o Options) (*profile, error) {
	p := &profile{name: cmp.Or(o.Profile, o.Getenv("AWS_PROFILE"), "default"), value: map[string]string{}}
	home := o.Getenv("HOME")
	if home == "" {
		home, _ = os.UserHomeDir() // without one there are no files
	}
	found := false
	for _, f := range []struct{ path, section string }{
		{cmp.Or(o.Getenv("AWS_CONFIG_FILE"), filepath.Join(home, ".aws", "config")), "profile " + p.name},
		{cmp.Or(o.Getenv("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(home, ".aws", "credentials")), p.name},
	} {
		b, err := os.ReadFile(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f.path)
		if p.name == "default" && f.section != p.name {
			found = p.read(b, "default") || found // the name may stand without "profile"
		}
		found = p.read(b, f.section) || found
	}
	if !found && p.name != "default" {
		return nil, fmt.Errorf("no profile %q in %s", p.name, cmp.Or(strings.Join(p.files, " and "), "the shared files, which are not there"))
	}
	return p, nil
}

// read takes the settings of one section; what the credentials file says counts
// more, as it is read last.
func (p *profile) read(b []byte, section string) (found bool) {
	in, group := false, ""
	for line := range strings.Lines(string(b)) {
		nested := line != "" && (line[0] == ' ' || line[0] == '\t')
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', line[0] == ';':
			continue
		case line[0] == '[':
			name, _, _ := strings.Cut(line[1:], "]")
			in = strings.Join(strings.Fields(name), " ") == section
			found = found || in
			group = ""
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !in || !ok {
			continue
		}
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		if i := strings.Index(value, " #"); i >= 0 {
			value = strings.TrimSpace(value[:i])
		}
		switch {
		case nested && group != "":
			if value != "" {
				p.value[group+"."+key] = value
			}
		case value == "":
			group = key
		default:
			group = ""
			p.value[key] = value
		}
	}
	return found
}

// credentials returns where the keys come from. Nothing is asked yet.
func (p *profile) credentials(o Options) (aws.CredentialsProvider, error) {
	env := func(names ...string) string {
		for _, n := range names {
			if v := o.Getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	if id, secret := env("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY"), env("AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"); id != "" && secret != "" && o.Profile == "" {
		return credentials.NewStaticCredentialsProvider(id, secret, env("AWS_SESSION_TOKEN")), nil
	}
	v := p.value
	switch {
	case v["role_arn"] != "", v["sso_session"] != "", v["sso_start_url"] != "":
		if v["credential_process"] == "" {
			return nil, fmt.Errorf(`profile %q assumes a role or signs on, which is not done here: give it a credential_process, such as "aws configure export-credentials --profile NAME --format process"`, p.name)
		}
		fallthrough
	case v["credential_process"] != "" && v["aws_access_key_id"] == "":
		return named{processcreds.NewProvider(v["credential_process"]), fmt.Sprintf("the credential_process of profile %q", p.name)}, nil
	case v["aws_access_key_id"] != "" && v["aws_secret_access_key"] != "":
		return credentials.NewStaticCredentialsProvider(v["aws_access_key_id"], v["aws_secret_access_key"], v["aws_session_token"]), nil
	case o.Profile != "":
		return nil, fmt.Errorf("profile %q has no credentials", p.name)
	}
	if c, ok, err := container(o); ok || err != nil {
		return c, err
	}
	return p.instance(o), nil
}

// container is the endpoint that ECS and EKS give to what runs in them.
func container(o Options) (aws.CredentialsProvider, bool, error) {
	where := o.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if rel := o.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); rel != "" {
		where = "http://169.254.170.2" + rel
	}
	if where == "" {
		return nil, false, nil
	}
	if u, err := url.Parse(where); err != nil || u.Scheme != "https" && !localAddress(u.Hostname()) {
		return nil, false, errText("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this host or its container service")
	}
	return named{endpointcreds.New(where, func(e *endpointcreds.Options) {
		e.AuthorizationToken = o.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
		if f := o.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); f != "" {
			e.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
				b, err := os.ReadFile(f)
				return strings.TrimSpace(string(b)), err
			})
		}
	}), "the container's credential endpoint"}, true, nil
}

func localAddress(host string) bool {
	switch host {
	case "localhost", "127.0.0.1", "::1", "169.254.170.2", "169.254.170.23", "fd00:ec2::23":
		return true
	}
	return false
}

// instance is the role of the machine, asked when the keys are needed.
func (p *profile) instance(o Options) aws.CredentialsProvider {
	io := imds.Options{Endpoint: o.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")}
	if strings.EqualFold(o.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		io.ClientEnableState = imds.ClientDisabled
	}
	looked := cmp.Or(strings.Join(p.files, ", "), "the shared files, which are not there")
	return named{ec2rolecreds.New(func(r *ec2rolecreds.Options) { r.Client = imds.New(io) }),
		fmt.Sprintf("no credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, none under %q in %s, and this machine's role", p.name, looked)}
}

// named says where credentials were looked for when there are none.
type named struct {
	aws.CredentialsProvider
	where string
}

func (n named) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := n.CredentialsProvider.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		return c, asf(ErrConfig, "%s: %w", n.where, shortError(err))
	}
	return c, err
}
