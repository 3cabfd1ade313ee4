// Package ours tells whether a program on CNI_PATH has the plugins that the
// running program has inside itself, so that it need not be started. It goes by
// what a program was built of, never by its name.
package ours

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Module is what a Go program that is of this project says it was built of.
const Module = "github.com/fairlead/fairlead"

// Programs knows the programs that it has looked at, until they change.
type Programs struct {
	mu    sync.Mutex
	known map[string]looked
}

type looked struct {
	file os.FileInfo
	same bool
}

// Same tells whether a file is of the version that this program has linked. A
// version that names no one state of the source (a tree with changes, or none
// that is known) counts only beside this program, as what was built with it.
func (p *Programs) Same(file string) bool {
	fi, err := os.Stat(file)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.known[file]; ok && os.SameFile(l.file, fi) && l.file.ModTime().Equal(fi.ModTime()) && l.file.Size() == fi.Size() {
		return l.same
	}
	if p.known == nil {
		p.known = map[string]looked{}
	}
	same := compare(file)
	if time.Since(fi.ModTime()) > time.Second { // not one that is just being written
		p.known[file] = looked{fi, same}
	}
	return same
}

func compare(file string) bool {
	theirs, err := buildinfo.ReadFile(file)
	if err != nil || theirs.Main.Path != Module {
		return false
	}
	own, ok := debug.ReadBuildInfo()
	if !ok || theirs.Main.Version != version(own) {
		return false
	}
	return definite(theirs.Main.Version) || beside(file)
}

// version is that of this project's packages in a program.
func version(info *debug.BuildInfo) string {
	if info.Main.Path == Module {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == Module && d.Replace == nil {
			return d.Version
		}
	}
	return "none"
}

// definite tells whether a version names one state of the source.
func definite(version string) bool {
	return version != "" && version != "(devel)" && !strings.Contains(version, "+dirty")
}

// beside tells whether a file is in this program's directory, links followed.
func beside(file string) bool {
	self, err1 := filepath.EvalSymlinks("/proc/self/exe")
	other, err2 := filepath.EvalSymlinks(file)
	return err1 == nil && err2 == nil && filepath.Dir(self) == filepath.Dir(other)
}
