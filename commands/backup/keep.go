package backup

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/backup/retention"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// keepFlags say what is kept.
type keepFlags struct {
	policy retention.Policy
	within age
	flags  *pflag.FlagSet
}

func (k *keepFlags) define(f *pflag.FlagSet) {
	k.flags = f
	f.IntVar(&k.policy.Last, "keep-last", 0, "keep the newest N")
	f.IntVar(&k.policy.Hourly, "keep-hourly", 0, "keep the newest of each of the last N hours that have any")
	f.IntVar(&k.policy.Daily, "keep-daily", 0, "the same by days (UTC)")
	f.IntVar(&k.policy.Weekly, "keep-weekly", 0, "by weeks")
	f.IntVar(&k.policy.Monthly, "keep-monthly", 0, "by months")
	f.IntVar(&k.policy.Yearly, "keep-yearly", 0, "by years")
	f.Var(&k.within, "keep-within", "keep all that are no older than this before the newest, such as 36h or 7d")
}

// given tells whether any flag was.
func (k *keepFlags) given() bool {
	for _, name := range []string{"last", "hourly", "daily", "weekly", "monthly", "yearly", "within"} {
		if k.flags.Changed("keep-" + name) {
			return true
		}
	}
	return false
}

// complete checks the policy. One that keeps nothing is refused: `--keep-last 0` in
// a script is a mistake.
func (k *keepFlags) complete() error {
	k.policy.Within = time.Duration(k.within)
	if err := k.policy.Check(); err != nil {
		return cli.WithHint(cli.Usagef("%v", err), "say what is to be kept, such as --keep-daily 7 --keep-weekly 5")
	}
	return nil
}

// age is a duration that may be given in days: 7d, 36h.
type age time.Duration

// Set reads it.
func (a *age) Set(s string) error {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || n < 0 || n > 36500 {
			return errAge(s)
		}
		*a = age(n * 24 * float64(time.Hour))
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errAge(s)
	}
	*a = age(d)
	return nil
}

type errAge string

func (e errAge) Error() string { return strconv.Quote(string(e)) + " is no time such as 36h or 7d" }

// String writes it as Go does.
func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

// Type names the value in help.
func (a *age) Type() string { return "age" }
