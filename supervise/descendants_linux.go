package supervise

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is what the kernel's table says of one.
type process struct {
	pid, parent, group int
	start              string // in the kernel's ticks, of equal width
}

// processes reads the kernel's table of processes; ended ones are left out.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := look(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// look reads what the kernel says of one process; false: it has ended.
func look(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// pid (name) state parent group …; a name may hold anything
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return process{}, false
	}
	parent, perr := strconv.Atoi(string(f[1]))
	group, gerr := strconv.Atoi(string(f[2]))
	return process{pid: pid, parent: parent, group: group, start: fmt.Sprintf("%20s", f[19])}, perr == nil && gerr == nil
}

// startOf is when a process started; "": it has ended.
func startOf(pid int) string {
	p, _ := look(pid)
	return p.start
}

// family is what belongs to a group: pid → when it started, so that a number which another
// process has got meanwhile is not taken for it.
type family map[int]string

// add adds the members of a group but its leader, and the descendants of all of these; who
// has ended is left out.
func (f family) add(group int) {
	all := processes()
	maps.DeleteFunc(f, func(pid int, start string) bool {
		return !slices.ContainsFunc(all, func(p process) bool { return p.pid == pid && p.start == start })
	})
	for more := true; more; {
		more = false
		for _, p := range all {
			if _, in := f[p.pid]; in || p.pid == group {
				continue
			}
			if start, of := f[p.parent]; p.group == group || of && start <= p.start {
				f[p.pid], more = p.start, true
			}
		}
	}
}

// alive returns those that still run.
func (f family) alive() (pids []int) {
	for _, p := range processes() {
		if f[p.pid] == p.start {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// familyOf returns what belongs to a group now. A process that has given up its parents, as
// daemons do, is not found.
func familyOf(group int) family {
	f := family{}
	f.add(group)
	return f
}

// signal sends to those that still run, but not to the group itself.
func (f family) signal(group int, s unix.Signal) {
	for _, p := range processes() {
		if f[p.pid] == p.start && p.group != group {
			_ = unix.Kill(p.pid, s) // it may have ended
		}
	}
}

// kill kills what belongs to a group but its leader, until none is left. All are stopped
// first, those known already without a look at the kernel's table: from then on nothing of
// it runs, and nobody loses the parent by which the look finds it.
func (f family) kill(group int) {
	stopped := family{}
	for range 10 {
		for pid, start := range f {
			if stopped[pid] != start && startOf(pid) == start {
				_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended
				stopped[pid] = start
			}
		}
		f.add(group)
		if f.within(stopped) {
			break
		}
	}
	for range 10 {
		pids := f.alive()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		f.add(group)
	}
}

// within tells whether all of f are in g.
func (f family) within(g family) bool {
	for pid, start := range f {
		if g[pid] != start {
			return false
		}
	}
	return true
}

// empty tells whether nobody but the leader is in a group, nor belongs to it.
func (f family) empty(group int) bool {
	f.add(group)
	return len(f.alive()) == 0
}
