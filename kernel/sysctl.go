package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Sysctl is a value under /proc/sys of a namespace.
type Sysctl struct {
	base
	In       Side   `json:",omitzero"`
	Key      string `json:",omitzero"` // below /proc/sys, with slashes: an interface's name may hold a dot
	Value    string `json:",omitzero"`
	Link     string `json:",omitzero"` // the link whose key it is; "": the namespace's own
	IfZero   bool   `json:",omitzero"` // written only where the value is 0: writing ip_forward resets others
	Optional bool   `json:",omitzero"` // a kernel without the key is fine
	IsShared bool   `json:",omitzero"`
}

func (s *Sysctl) kind() string { return "sysctl" }
func (s *Sysctl) Side() Side   { return s.In }
func (s *Sysctl) Shared() bool { return s.IsShared }

func (s *Sysctl) on() linkName {
	if s.Link == "" {
		return linkName{}
	}
	return linkName{s.In, s.Link}
}

func (s *Sysctl) String() string {
	key := s.Key
	if !strings.Contains(key, ".") {
		key = strings.ReplaceAll(key, "/", ".")
	}
	return "sysctl -w " + key + "=" + s.Value
}

func (s *Sysctl) ensure(e *Engine) error {
	if err := e.flush(); err != nil {
		return err
	}
	return e.inside(s.In, func() error {
		if s.IfZero || s.IsShared {
			have, err := readSysctl(s.Key)
			if err == nil && (have == s.Value || s.IfZero && have != "0") {
				return nil
			}
		}
		return writeSysctl(s.Key, s.Value, s.Optional)
	})
}

func (s *Sysctl) diff(e *Engine) (d []string, err error) {
	err = e.inside(s.In, func() error {
		have, err := readSysctl(s.Key)
		switch {
		case s.Optional && errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			return err
		case have != s.Value && (!s.IfZero || have == "0"):
			d = []string{fmt.Sprintf("is %s", have)}
		}
		return nil
	})
	return d, err
}

func (s *Sysctl) remove(*Engine) error { return nil }

// Sysctl reads a key, with slashes, of a side.
func (e *Engine) Sysctl(s Side, key string) (v string, err error) {
	err = e.inside(s, func() error {
		v, err = readSysctl(key)
		return err
	})
	return v, err
}

// inside runs f in the namespace of a side.
func (e *Engine) inside(s Side, f func() error) error {
	if s == Host {
		return f()
	}
	if e.ns[s] == nil {
		return errNoContainer
	}
	return e.ns[s].Do(f)
}

func readSysctl(key string) (string, error) {
	raw, err := os.ReadFile("/proc/sys/" + key)
	return strings.TrimSpace(string(raw)), err
}

// writeSysctl writes without truncation, which procfs has no use for.
func writeSysctl(key, value string, optional bool) error {
	f, err := os.OpenFile("/proc/sys/"+key, os.O_WRONLY, 0)
	if optional && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
