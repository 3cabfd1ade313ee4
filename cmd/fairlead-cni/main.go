// Command fairlead-cni is all plugins in one program. The name that it is started by, or else its first argument, chooses
// the plugin. With --list it prints the names of the plugins, one a line.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

func main() {
	if args, ok := daemonArgs(os.Args); ok {
		fmt.Fprintln(os.Stderr, "dhcp daemon:", execDaemon(args))
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
	os.Exit(option(os.Args[1:]))
}

// option runs the program without a plugin, and returns its exit code.
func option(args []string) int {
	switch {
	case slices.Equal(args, []string{"--list"}):
		for _, p := range plugins.All() {
			fmt.Println(p.Name)
		}
		return 0
	case slices.Equal(args, []string{"--version"}):
		fmt.Println("fairlead-cni v" + cni.Release())
		return 0
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help"):
		usage(os.Stdout)
		return 0
	case len(args) == 0:
		fmt.Fprintln(os.Stderr, "fairlead-cni: the name of a plugin is missing")
	default:
		fmt.Fprintf(os.Stderr, "fairlead-cni: there is no plugin %q\n", args[0])
	}
	usage(os.Stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, `fairlead-cni is all CNI plugins of Fairlead in one program. A container runtime starts it through a link
with the name of a plugin: "fairlead install" creates the links.

Usage:
  fairlead-cni PLUGIN      run a plugin; the variables CNI_* and standard input say what to do
  fairlead-cni --list      print the names of the plugins
  fairlead-cni --version   print the version
  fairlead-cni --help      print this help

Plugins:
`)
	for _, p := range plugins.All() {
		fmt.Fprintf(w, "  %-15s %s\n", p.Name, p.About)
	}
}
