package reply

import (
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// wouldView is what --dry-run answers where there is no more to show than a sentence.
type wouldView struct {
	DryRun bool   `json:"dryRun"`
	Would  string `json:"would"`
}

func (v wouldView) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "WOULD", Wrap: true}}, Rows: [][]string{{v.Would}}}
}

// Would answers --dry-run.
func (p *Printer) Would(what string) error {
	if p.Format == output.Protobuf {
		return cli.Usagef("--dry-run has no protobuf")
	}
	v := wouldView{true, what}
	return p.Print(Answer{
		JSON: v, View: v,
		Simple: func(b []byte) []byte { return fmt.Appendf(b, "would %s\n", what) },
		Fields: func(b []byte) []byte { return fmt.Appendf(b, "\"DryRun\" : true\n\"Would\" : %q\n", what) },
	})
}
