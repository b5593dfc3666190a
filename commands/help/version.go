package help

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/version"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// Version and Commit are set by the release build (-ldflags -X).
var (
	Version = ""
	Commit  = ""
)

type versionView struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Etcd    string `json:"etcdClient"`
	API     string `json:"etcdApi"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (v versionView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "VERSION"}, {Name: "COMMIT"}, {Name: "ETCD CLIENT"}, {Name: "ETCD API"}, {Name: "GO"}, {Name: "PLATFORM"}},
		Rows:    [][]string{{v.Version, v.Commit, v.Etcd, v.API, v.Go, v.OS + "/" + v.Arch}},
	}
}

func (v versionView) Text() string {
	s := "etcdctl-plus version: " + v.Version
	if v.Commit != "" {
		s += " (" + v.Commit + ")"
	}
	return s + "\netcd client: " + v.Etcd + "\nAPI version: " + v.API + "\nGo: " + v.Go + " " + v.OS + "/" + v.Arch + "\n"
}

// dropInView is what etcdctl prints.
type dropInView struct{ name, version, api string }

func (v dropInView) Text() string {
	return v.name + " version: " + v.version + "\nAPI version: " + v.api + "\n"
}

// NewVersion makes `version`.
func NewVersion(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := current()
			p, err := env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
			if err != nil {
				return err
			}
			if env.DropIn() {
				return p.Print(dropInView{env.Name, v.Etcd, v.API})
			}
			return p.Print(v)
		},
	}
}

func current() versionView {
	v := versionView{Version: Version, Commit: Commit, Etcd: version.Version, API: version.APIVersion, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if v.Version == "" {
		v.Version = "development"
		if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
			v.Version = bi.Main.Version
		}
	}
	return v
}
