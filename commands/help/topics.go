// Package help holds the help topics and the version.
package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

// Topics returns commands that only hold text: `help exit-codes` and so on.
func Topics(env *cli.Env) []*cobra.Command {
	topic := func(name, short, long string) *cobra.Command {
		c := &cobra.Command{Use: name, Short: short, Long: long}
		c.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), c.Long) })
		return c
	}
	return []*cobra.Command{
		topic("exit-codes", "What each exit code means", exitCodes()),
		topic("environment", "Variables, contexts and which one wins", environment(env)),
		topic("formats", "Output formats", formats),
	}
}

func exitCodes() string {
	var b strings.Builder
	b.WriteString("Exit codes (as etcdctl or etcdutl the codes are theirs):\n\n")
	for _, c := range cli.Codes {
		retry := ""
		if c.Retryable {
			retry = " (reads may be retried)"
		}
		fmt.Fprintf(&b, "  %3d  %-13s %s%s\n", c.Code, c.Class, c.Meaning, retry)
	}
	b.WriteString(`
A signal ends the program by being raised again: a shell shows 129 for HUP, 130
for INT, 141 for a broken pipe, 143 for TERM. ` + "`sandbox`, `watch`, `lock` and `elect`" + ` pass
the code of a command that they run through: 128 and the signal's number when it
was killed, 127 when it is not there, 126 when it cannot be run.

With -w json or -w jsonl an error is one JSON object on stderr:
{"code", "class", "retryable", "message", "hint", "endpoint", "revision"}.
The class "unknown-outcome" marks a write that may have happened.`)
	return b.String()
}

func environment(env *cli.Env) string {
	var b strings.Builder
	b.WriteString("Settings and their variables. A flag wins over a variable, that over the\ncontext, that over the default; of two variables the first one listed wins.\n\n")
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Define(set, env.DropIn(), env.Getenv)
	set.VisitAll(func(f *pflag.Flag) {
		fmt.Fprintf(&b, "  --%-26s %s\n", f.Name, strings.Join(config.Env(f.Name, env.DropIn()), ", "))
	})
	if !env.DropIn() {
		b.WriteString(`
Contexts live in etcdctl-plus/config.yaml in the user's configuration folder
($XDG_CONFIG_HOME, else ~/.config), or in the file given with --config:

  current-context: prod
  contexts:
    prod:
      endpoints: https://10.0.0.1:2379,https://10.0.0.2:2379
      cacert: /etc/etcd/ca.crt
      cert: /etc/etcd/client.crt
      key: /etc/etcd/client.key
    prod-look:
      endpoints: https://10.0.0.1:2379
      read-only: true

A context may hold every setting listed above but context and config, and
encryption-config, the EncryptionConfiguration that opens sealed values where no
flag names one (also ETCDCTL_PLUS_ENCRYPTION_CONFIG). ` + "`context set`" + ` writes contexts,
` + "`context detect`" + ` finds the etcd of this machine.
`)
	}
	if env.DropIn() {
		b.WriteString("\nETCDCTL_PLUS_READ_ONLY=true refuses every request that would change the cluster,\nunder this name too.\n")
	}
	b.WriteString("\nNO_COLOR turns colours off; XDG_CONFIG_HOME and TMPDIR are honoured.")
	return b.String()
}

const formats = `Output formats, chosen with -w (registry commands also take -o):

  table      for people; fits the terminal, a pipe gets whole values
  wide       table with more columns
  simple     tab-separated without a header (get, put, del, watch: as etcdctl)
  fields     "Name" : value, a line each
  json       one document
  jsonl      one document a line, written as results come
  yaml       documents separated by ---
  template=T Go template over the JSON form, such as 'template={{.revision}}'
  jsonpath=P Kubernetes' JSONPath over the JSON form, such as 'jsonpath={.items[*].key}'
             (of get, put and del: {"items": […]} of what jsonl prints, of watch: each
             event of it; never etcd's own form);
             a lone path needs no braces. jsonpath-file=F and template-file=F
             read the query from a file
  custom-columns=NAME:.metadata.name,…
             registry get: columns of your own; custom-columns-file=F
  protobuf   etcd's own answer message (get, put, del)
  name, raw  registry get: resource/name, and the bytes as stored

Many results come as {"items": […]}. A key or value that is no UTF-8 comes as base64
in keyBase64 or valueBase64 instead. Ids are strings in our own JSON; names carry their unit (dbBytes, ttlSeconds).
stdout holds the answer and nothing else. With json and jsonl what goes to stderr is for
programs too, an object a line: {"warning": "…"}, {"damage": "…"} (what is lost or wrong),
{"note": "…"} (what was done besides), and at the end of a failure one with code, class,
retryable, message and hint (help exit-codes). Colour appears only on a terminal, and
a terminal never receives a control character out of a key or value: it shows
as \x1b or \u009b.`
