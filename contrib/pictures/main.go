// Command pictures writes the drawings in docs/pictures: the architecture, a packet's path for each backend, the map of
// a cluster, and a recorded session of the command. "make pictures" runs it.
//
// The map comes from the same code as "fairlead map". The session runs the real command in namespaces of its own
// (record.sh); without -session the committed recording stays.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", "docs/pictures", "write the pictures to this `directory`")
	session := flag.String("session", "", "draw the session in this `file`, which record.sh wrote")
	flag.Parse()
	if err := run(*out, *session); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(dir, session string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pictures := map[string]func() ([]byte, error){
		"architecture.svg": func() ([]byte, error) { return architecture().svg(), nil },
		"cluster.svg":      clusterMap,
	}
	for _, b := range backends() {
		pictures["path-"+b.name+".svg"] = func() ([]byte, error) { return packetPath(b).svg(), nil }
	}
	if session != "" {
		raw, err := os.ReadFile(session)
		if err != nil {
			return err
		}
		steps, err := parseSession(bytes.NewReader(raw))
		if err != nil {
			return fmt.Errorf("%s: %w", session, err)
		}
		pictures["session.svg"] = func() ([]byte, error) { return animation(steps), nil }
		pictures["session-still.svg"] = func() ([]byte, error) { return still(steps), nil }
	}
	for name, draw := range pictures {
		data, err := draw()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
