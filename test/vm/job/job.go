// Package job is what the host tells the guest: it is written into the initial
// RAM file system as JSON.
package job

// File is its path in the initial RAM file system.
const File = "/job.json"

// The guest's names for what the host gives it.
const (
	RootTag = "root"     // virtiofs tag of the host's /, read-only
	OutTag  = "out"      // virtiofs tag of the directory for what comes back
	Out     = "/run/out" // where the guest has that
	RCFile  = "rc"       // in it, the exit code
	Console = "/dev/ttyS1"
)

// Job is a run of one guest.
type Job struct {
	Release  string   // of the kernel: uname -r
	Boot     []string // module files in the initial RAM file system, in order of loading
	Modules  string   // directory on the host that is to be /lib/modules/RELEASE
	Preload  []string // modules loaded before the first test
	Writable []Share  // directories that the guest shares with the host for writing
	Env      []string
	Verbose  bool // print what tests print even if they pass
	Tests    []Test
}

// Share is a directory of the host that the guest has at the same place.
type Share struct{ Tag, Dir string }

// Test is one package's test binary with its arguments.
type Test struct {
	Package string // import path, for the report
	Dir     string
	Argv    []string
	Env     []string
}
