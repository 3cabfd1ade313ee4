// Package job defines the host's instructions to the guest, a JSON file in the initial RAM file system.
package job

// File is the job's path in the initial RAM file system.
const File = "/job.json"

// These names are shared by the host and the guest.
const (
	RootTag = "root"     // virtiofs tag of the host's /, read-only
	OutTag  = "out"      // virtiofs tag of the directory for results
	Out     = "/run/out" // its mount point in the guest
	RCFile  = "rc"       // the file in Out with the exit code
	Console = "/dev/ttyS1"
)

// Job describes one run of a guest.
type Job struct {
	Release  string   // the kernel's release (uname -r)
	Boot     []string // module files in the initial RAM file system, in order of loading
	Modules  string   // the host's directory to mount at /lib/modules/RELEASE
	Preload  []string // modules loaded before the first test
	Writable []Share  // directories that the guest shares with the host for writing
	Env      []string
	Verbose  bool // print what tests print even if they pass
	Tests    []Test
}

// Share is a directory of the host that the guest mounts at the same path.
type Share struct{ Tag, Dir string }

// Test is one package's test binary with its arguments.
type Test struct {
	Package string // import path, for the report
	Dir     string
	Argv    []string
	Env     []string
}
