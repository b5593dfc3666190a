// Command etcdctl-plus reads, checks and tends etcd, live or from a file. See
// README.md.
package main

import (
	"os"

	_ "github.com/etcdctl-plus/etcdctl-plus/cmd/etcdctl-plus/startup" // for its effect
	"github.com/etcdctl-plus/etcdctl-plus/commands"
)

func main() { os.Exit(commands.Main(os.Args)) }
