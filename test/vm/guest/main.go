// Command guest is the init process of a virtual machine for tests. It mounts a writable overlay of the host's root
// file system, runs the job's test binaries, reports like go test, and powers the machine off. It never runs on a host.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/fairlead/fairlead/test/vm/job"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest must run as process 1 of a virtual machine: see make test-vm")
		os.Exit(2)
	}
	rc, err := start()
	if err != nil {
		fmt.Println("vm: the guest did not start:", err) // on the kernel's console
	} else if err := os.WriteFile(filepath.Join(job.Out, job.RCFile), strconv.AppendInt(nil, int64(rc), 10), 0o644); err != nil {
		fmt.Println("vm: report the exit code:", err)
	}
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// start returns the exit code of the tests.
func start() (int, error) {
	var j job.Job
	raw, err := os.ReadFile(job.File)
	if err == nil {
		err = json.Unmarshal(raw, &j)
	}
	if err != nil {
		return 0, fmt.Errorf("read the job: %w", err)
	}
	if err := loadModules(j.Boot); err != nil {
		return 0, err
	}
	if err := newRoot(&j); err != nil {
		return 0, err
	}
	out, err := os.OpenFile(job.Console, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	prepare(&j, out)
	return run(&j, out), nil
}
