package maintain

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

// The work on one member has its own bound unless somebody gives one; questions have theirs.
func TestDefragTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env       map[string]string
		args      []string
		work, ask time.Duration
	}{
		{nil, nil, 10 * time.Minute, 5 * time.Second},
		{nil, []string{"--command-timeout", "7s"}, 7 * time.Second, 7 * time.Second},
		{map[string]string{"ETCDCTL_COMMAND_TIMEOUT": "20m"}, nil, 20 * time.Minute, 20 * time.Minute},
	} {
		env := cli.NewEnv("etcdctl-plus", strings.NewReader(""), io.Discard, io.Discard, func(k string) string { return c.env[k] })
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		env.Flags = config.Define(set, env.DropIn(), env.Getenv)
		if err := set.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		o := defragOptions{env: env}
		if work, ask, err := o.timeouts(); err != nil || work != c.work || ask != c.ask {
			t.Errorf("%v %q: %s, %s, %v", c.env, c.args, work, ask, err)
		}
	}
}
