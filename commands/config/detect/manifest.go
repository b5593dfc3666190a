package detect

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// pod is a static pod with the one program we look for.
type pod struct {
	flags  values
	mounts map[string]string // path in the container → path of the host
}

// podFile is the part of a Pod that matters here.
type podFile struct {
	Spec struct {
		Containers []struct {
			Command []string `yaml:"command"`
			Args    []string `yaml:"args"`
			Env     []struct {
				Name      string `yaml:"name"`
				Value     string `yaml:"value"`
				ValueFrom any    `yaml:"valueFrom"` // known to the kubelet alone
			} `yaml:"env"`
			VolumeMounts []struct {
				Name      string `yaml:"name"`
				MountPath string `yaml:"mountPath"`
				SubPath   string `yaml:"subPath"`
			} `yaml:"volumeMounts"`
		} `yaml:"containers"`
		Volumes []struct {
			Name     string `yaml:"name"`
			HostPath struct {
				Path string `yaml:"path"`
			} `yaml:"hostPath"`
		} `yaml:"volumes"`
	} `yaml:"spec"`
}

// pod reads a static pod's manifest and finds the container that runs program.
func (t *tree) pod(file, program string) (*pod, error) {
	b, err := t.read(file)
	if err != nil {
		return nil, err
	}
	var f podFile
	if err := yaml.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("is no Pod: %w", err)
	}
	for _, c := range f.Spec.Containers {
		p := &pod{flags: newValues(), mounts: map[string]string{}}
		env := map[string]string{}
		for _, e := range c.Env {
			if e.ValueFrom != nil {
				continue
			}
			env[e.Name] = e.Value
			if name, ok := etcdVariable(e.Name); ok && program == "etcd" {
				p.flags.all[name], p.flags.from[name] = []string{e.Value}, t.shown(file)+": "+e.Name
			}
		}
		line := slices.Concat(c.Command, c.Args)
		for i := range line { // the kubelet's own variables
			for k, x := range env {
				line[i] = strings.ReplaceAll(line[i], "$("+k+")", x)
			}
		}
		args, ok := flagsOf(line, program, env)
		if !ok {
			continue
		}
		p.flags.over(parseFlags(args, t.shown(file)))
		for _, m := range c.VolumeMounts {
			for _, v := range f.Spec.Volumes {
				if v.Name == m.Name && v.HostPath.Path != "" {
					p.mounts[path.Clean(m.MountPath)] = path.Join(v.HostPath.Path, m.SubPath)
				}
			}
		}
		if conf := p.flags.get("config-file"); conf != "" && program == "etcd" {
			return p, t.configFile(p.host(conf), &p.flags)
		}
		return p, nil
	}
	return nil, fmt.Errorf("has no container that runs %s", program)
}

// host turns a path in the container into one of the host.
func (p *pod) host(inside string) string {
	for dir := path.Clean(inside); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if h, ok := p.mounts[dir]; ok {
			return path.Join(h, strings.TrimPrefix(path.Clean(inside), dir))
		}
	}
	return inside
}

// configFile replaces v by what an etcd configuration file says: with one, etcd looks at
// neither flags nor variables.
func (t *tree) configFile(file string, v *values) error {
	b, err := t.read(file)
	if err != nil {
		return err
	}
	var m map[string]any
	if err := yaml.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("%s is no configuration file of etcd: %w", t.shown(file), err)
	}
	w := newValues()
	add := func(name, member string, x any) {
		switch x := x.(type) {
		case nil, map[string]any:
		case []any:
			var l []string
			for _, e := range x {
				l = append(l, fmt.Sprint(e))
			}
			w.all[name], w.from[name] = []string{strings.Join(l, ",")}, t.shown(file)+": "+member
		default:
			w.all[name], w.from[name] = []string{fmt.Sprint(x)}, t.shown(file)+": "+member
		}
	}
	for k, x := range m {
		add(k, k, x)
	}
	if tls, ok := m["client-transport-security"].(map[string]any); ok {
		for k, x := range tls {
			add(k, "client-transport-security."+k, x)
		}
	}
	*v = w
	return nil
}

// etcdVariable returns the flag that a variable of etcd's stands for.
func etcdVariable(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "ETCD_")
	return strings.ToLower(strings.ReplaceAll(rest, "_", "-")), ok
}

// parseFlags reads --flag=value and --flag value; a flag without a value is true.
func parseFlags(args []string, from string) values {
	v := newValues()
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !has {
			value = "true"
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				value = args[i]
			}
		}
		v.all[name], v.from[name] = append(v.all[name], value), from+": --"+name
	}
	return v
}

// flagsOf returns what follows a program in a command line, which may go through a
// shell.
func flagsOf(args []string, program string, env map[string]string) ([]string, bool) {
	for i, a := range args {
		if path.Base(a) == program {
			return args[i+1:], true
		}
		if a == "-c" && i > 0 && strings.HasSuffix(path.Base(args[i-1]), "sh") && i+1 < len(args) {
			return flagsOf(words(args[i+1], env), program, nil)
		}
	}
	return nil, false
}
