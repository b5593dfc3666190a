package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	k8s "github.com/etcdctl-plus/etcdctl-plus/registry"
)

type decodeOptions struct {
	env     *cli.Env
	decoder cli.DecodeFlags
	out     outputFlag
	file    string
	key     string
	input   string
}

func newDecodeCmd(env *cli.Env) *cobra.Command {
	o := decodeOptions{env: env}
	c := &cobra.Command{
		Use:   "decode [FILE]",
		Short: "Decode a stored value from standard input or a file",
		Long: `Decode a stored value from standard input or a file. The input may be the raw
bytes, hex, base64, what ` + "`etcdctl get`" + ` prints (the key line is recognised), or
its -w json or jsonl form with any number of keys; --input forces one of them.

A value sealed with aesgcm is bound to its key: give it with --etcd-key when the input
does not have it. Bytes that went through a terminal, which turns line feeds into
CR LF, are recognised as damaged.`,
		Example: `  etcdctl get /registry/pods/shop/web-0 --print-value-only | etcdctl-plus registry decode
  etcdctl get /registry/pods/shop --prefix -w json | etcdctl-plus registry decode -o jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] != "-" {
				o.file = args[0]
			}
			if !slices.Contains(inputForms, o.input) {
				return cli.Usagef("--input %q is not one of %s", o.input, strings.Join(inputForms, ", "))
			}
			return o.run()
		},
	}
	f := c.Flags()
	o.decoder.Define(env, f)
	o.out.define(env, f)
	f.StringVar(&o.key, "etcd-key", "", "etcd key of the value")
	f.StringVar(&o.input, "input", "auto", "form of the input: auto, raw, hex, base64, or json (of a get, also jsonl)")
	_ = c.RegisterFlagCompletionFunc("input", cobra.FixedCompletions(inputForms, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return c
}

func (o *decodeOptions) run() error {
	p, err := o.out.printer(output.YAML, output.JSON, output.JSONL, output.Raw, output.Template, output.JSONPath)
	if err != nil {
		return err
	}
	b, err := o.read()
	if err != nil {
		return err
	}
	values, err := parseInput(b, o.input)
	if err != nil {
		return &cli.Error{Code: cli.Data, Err: err}
	}
	dec, err := o.decoder.Plain()
	if err != nil {
		return err
	}
	if len(values) == 1 {
		o.decoder.Tell = func(error) {} // the one value's error says it
		return o.one(p, dec, values[0])
	}
	return o.many(p, dec, values)
}

func (o *decodeOptions) read() ([]byte, error) {
	if o.file != "" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, fmt.Errorf("read value: %w", err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, cli.MaxInput+1))
		if err != nil {
			return nil, fmt.Errorf("read value: %w", err)
		}
		if len(b) > cli.MaxInput {
			return nil, cli.TooLong(o.file)
		}
		return b, nil
	}
	return o.env.ReadStdin("a stored value")
}

func (o *decodeOptions) one(p *output.Printer, dec *cli.Decoding, v input) error {
	r := o.decode(dec, v)
	if p.Format == output.Raw && r.Plain != nil {
		_, err := p.Out.Write(r.Plain)
		return err
	}
	if r.Object == nil {
		return o.undecoded(r)
	}
	if err := p.Print(json.RawMessage(r.Object)); err != nil {
		return err
	}
	if errors.Is(r.Err, k8s.ErrDamaged) {
		return o.undecoded(r) // what was printed is what is left of it
	}
	if r.Err != nil {
		o.env.Warn("%v", r.Err)
	}
	return nil
}

func (o *decodeOptions) many(p *output.Printer, dec *cli.Decoding, values []input) error {
	s := p.Stream(output.KubernetesList)
	failed := 0
	for _, v := range values {
		r := o.decode(dec, v)
		if r.Object == nil {
			failed++
			if !errors.Is(r.Err, k8s.ErrPlugin) { // the plugin's failure was told
				o.env.Warn("%s: %v", v.key, o.undecoded(r))
			}
			continue
		}
		if err := s.Write(json.RawMessage(r.Object)); err != nil {
			return err
		}
		if errors.Is(r.Err, k8s.ErrDamaged) {
			failed++
			o.env.Warn("%s: %v", v.key, r.Err)
		}
	}
	if err := s.Close("no value in the input"); err != nil {
		return err
	}
	if failed > 0 {
		return cli.Failf(cli.Partial, "%d of %d values could not be decoded", failed, len(values))
	}
	return nil
}

func (o *decodeOptions) decode(dec *cli.Decoding, v input) k8s.Result {
	if o.key != "" {
		v.key = o.key
	}
	d := dec.NewDecoder(v.modRev != 0)
	if v.modRev != 0 {
		return d.Decode([]byte(v.key), v.value, v.modRev)
	}
	return d.DecodeValue([]byte(v.key), v.value)
}

// undecoded says why there is no object, and what to do.
func (o *decodeOptions) undecoded(r k8s.Result) error {
	err := r.Err
	if err == nil {
		err = fmt.Errorf("the value is no Kubernetes object (%s, %d bytes)", r.Encoding, len(r.Plain))
	}
	hint := "-o raw prints the bytes as they are"
	switch {
	case errors.Is(err, k8s.ErrCRLF):
		hint = "take the bytes without a terminal in between: a pipe or a file, not copy and paste, and no `ssh -t` or `kubectl exec -t`"
	case errors.Is(err, k8s.ErrPlugin):
		hint = o.decoder.SealedHint()
	case r.Seal.Provider != "" && !r.Seal.Opened:
		hint = "give the API server's EncryptionConfiguration with --encryption-config, and the etcd key with --etcd-key"
	}
	return &cli.Error{Code: cli.Data, Err: err, Hint: hint}
}
