// Command flannel compares flanneld with Fairlead's agent, in turn, on equal hosts. It measures how soon a new host is
// connected, what a restart loses, and the cost of a node at rest and of each added node. The hosts are namespaces.
// Additional nodes are simulated by their keys in the store.
//
//	go run ./bench/flannel [-n ROUNDS] [-rest TIME] [-write FILE]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/test/flanneld"
)

func main() {
	rounds := flag.Int("n", 3, "rounds with each number of nodes")
	rest := flag.Duration("rest", 15*time.Second, "how long to measure the idle programs")
	page := flag.String("write", "", "write the table into this `file`")
	only := flag.Bool("build", false, "build the programs, and measure nothing")
	flag.Parse()
	if err := run(*rounds, *rest, *page, *only); err != nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

// crowds returns the numbers of simulated nodes in the store.
func crowds() []int { return []int{3, 50, 200} }

func run(rounds int, rest time.Duration, page string, only bool) error {
	program, err := flanneld.Program()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fairlead-flannel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, "./cmd/fairlead", "./cmd/fairlead-cni")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	if only {
		return nil
	}
	f := figures{}
	for _, n := range crowds() {
		for i := range rounds {
			fmt.Fprintf(os.Stderr, "%d nodes, round %d\n", n, i+1)
			logs := filepath.Join(dir, fmt.Sprintf("%d-%d", n, i))
			last := time.Duration(0)
			if i == rounds-1 {
				last = rest
			}
			if err := round(context.Background(), f, dir, logs, program, n, i, last); err != nil {
				fmt.Print(f.table()) // results so far
				return err
			}
		}
	}
	table := f.table()
	fmt.Print(table)
	if page == "" {
		return nil
	}
	return write(page, table)
}
