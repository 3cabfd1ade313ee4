// Command fairlead-cni is every plugin in one program: the name by which it is
// called, or its first argument, picks one. --list prints the names, a line each.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

func main() {
	if args, ok := daemonArgs(os.Args); ok {
		fmt.Fprintln(os.Stderr, "dhcp daemon:", becomeDaemon(args))
		os.Exit(1)
	}
	names := []string{filepath.Base(os.Args[0])}
	if len(os.Args) > 1 {
		names = append(names, os.Args[1])
	}
	for _, p := range plugins.All() {
		for _, n := range names {
			if p.Name == n {
				skel.PluginMain(p)
			}
		}
	}
	if len(os.Args) == 2 && os.Args[1] == "--list" {
		for _, p := range plugins.All() {
			fmt.Println(p.Name)
		}
		return
	}
	fmt.Fprintf(os.Stderr, "%s is no plugin of Fairlead. Link it as, or call it with, one of:\n", names[len(names)-1])
	for _, p := range plugins.All() {
		fmt.Fprintf(os.Stderr, "  %-12s %s\n", p.Name, p.About)
	}
	os.Exit(2)
}
