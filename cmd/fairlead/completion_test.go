package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shellScripts complete "fairlead $WORD pl", with the text of the variable WORD, and print the results.
func shellScripts() map[string]string {
	return map[string]string{
		"bash": `source ./script; words=(fairlead "$WORD" pl); cur=pl; __fairlead_get_completion_results; echo "$out"`,
		"zsh": `compdef() {}; _describe() { print -l "${(@)completions}"; }; _arguments() {}; source ./script
			words=(fairlead "$WORD" pl); CURRENT=3; _fairlead`,
		"fish": `source ./script; complete -C "fairlead $WORD pl"`,
	}
}

// TestCompletionRunsNoCommand checks that the completion scripts complete a line, and do not run a command substitution
// or a redirection in it.
func TestCompletionRunsNoCommand(t *testing.T) {
	t.Parallel()
	for shell, complete := range shellScripts() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			code, script, errs := call(nil, "fairlead", "completion", shell)
			if code != 0 || errs != "" {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			// The script runs the program that the line names. This one always offers the same value.
			program := "#!/bin/sh\nprintf '%s\\n' plugin:dhcp:text :4\n"
			write(t, dir, "script", script)
			must(t, os.Chmod(write(t, dir, "fairlead", program), 0o700))
			run := func(word string) string {
				cmd := exec.Command(shell, "-c", complete)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "WORD="+word)
				out, _ := cmd.CombinedOutput() // a completion without results fails in fish
				return string(out)
			}
			if out := run("$HOME"); !strings.Contains(out, "plugin") {
				t.Errorf("a plain line: %q", out)
			}
			for _, word := range []string{"$(touch ran)", "`touch ran`", "<(touch ran)", "'(touch ran)'", "'x;touch ran'", ">ran"} {
				out := run(word)
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
					t.Fatalf("%s ran: %q", word, out)
				}
			}
		})
	}
}
