package supervise

import (
	"bytes"
	"fmt"
	"os"
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
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent group …; a name may hold anything
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
			continue
		}
		p := process{pid: pid, start: fmt.Sprintf("%20s", f[19])}
		if p.parent, err = strconv.Atoi(string(f[1])); err != nil {
			continue
		}
		if p.group, err = strconv.Atoi(string(f[2])); err != nil {
			continue
		}
		all = append(all, p)
	}
	return all
}

// family is what belongs to a group: pid → when it started, so that a number which another
// process has got meanwhile is not taken for it.
type family map[int]string

// add adds the members of a group but its leader, and the descendants of all of these.
func (f family) add(group int) {
	all := processes()
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

// kill kills a group but its leader, and what belongs to it, until none is left.
func (f family) kill(group int) {
	for range 10 {
		f.add(group)
		pids := f.alive()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
}

// empty tells whether nobody but the leader is in a group, nor belongs to it.
func (f family) empty(group int) bool {
	f.add(group)
	return len(f.alive()) == 0
}
