package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// processes is the most processes and threads that the tests may have. A fault can make a program start itself for ever.
const processes = 3000

// limitProcesses moves this process into a control group with a limit. Its children inherit it.
func limitProcesses() error {
	var errs []error
	for _, parent := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} { // version 1, version 2
		dir := filepath.Join(parent, "fairlead-mutate")
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(processes)), 0o644)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("limit the number of processes with a control group: %w", errors.Join(errs...))
}
