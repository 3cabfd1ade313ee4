package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsOnPages checks the commands on all pages, also those inside a sentence, and those that error messages tell
// the user to type: each exists, and takes the flags and the number of arguments that the text gives it.
func TestCommandsOnPages(t *testing.T) {
	t.Parallel()
	const top = "../.."
	counts := map[string]int{}
	must(t, filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		find, ok := map[string]func(string) [][]string{".md": commandsIn, ".go": hintsIn}[filepath.Ext(path)]
		if err != nil || !ok {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, words := range find(string(raw)) {
			counts[filepath.Ext(path)]++
			if problem := checkCommand(words); problem != "" {
				t.Errorf("%s: fairlead %s: %s", strings.TrimPrefix(path, top+"/"), strings.Join(words, " "), problem)
			}
		}
		return err
	}))
	if counts[".md"] < 200 || counts[".go"] < 30 {
		t.Errorf("found only %v commands", counts)
	}
}

var (
	hint          = regexp.MustCompile(`[Tt]ype: (?:sudo (?:-E )?)?fairlead ([a-z](?: ?[\w%./:=@-]+)+)`)
	inlineCommand = regexp.MustCompile("`(?:sudo )?fairlead ([^`]+)`")
	blockCommand  = regexp.MustCompile(`(?m)^ *(?:\$ )?(?:sudo )?fairlead ((?:.*\\\n)*.*)$`)
	shellWord     = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	shellEnd      = regexp.MustCompile(`\s(#|[|>&;]).*`)
)

// hintsIn returns the arguments of each command that a program's text names after "type:".
func hintsIn(code string) (all [][]string) {
	for _, m := range hint.FindAllStringSubmatch(code, -1) {
		all = append(all, strings.Fields(m[1]))
	}
	return all
}

// commandsIn returns the arguments of each command "fairlead" in a page.
func commandsIn(page string) (all [][]string) {
	add := func(list [][]string, inline bool) {
		for _, m := range list {
			text := strings.ReplaceAll(m[1], "\\\n", " ")
			words := shellWord.FindAllString(shellEnd.ReplaceAllString(text, ""), -1)
			if len(words) > 1 || len(words) == 1 && !inline { // "fairlead add" in a sentence is a name
				all = append(all, words)
			}
		}
	}
	for i, part := range strings.Split(page, "```") {
		if i%2 == 0 {
			add(inlineCommand.FindAllStringSubmatch(part, -1), true)
		} else {
			add(blockCommand.FindAllStringSubmatch(part, -1), false)
		}
	}
	return all
}

func checkCommand(words []string) string {
	c, rest, err := newApp().root().Find(words)
	if err != nil {
		return err.Error()
	}
	if err := c.ParseFlags(rest); err != nil && !strings.Contains(err.Error(), "needs an argument") { // a sentence names the flag
		return err.Error()
	}
	args := c.Flags().Args()
	if c.HasSubCommands() && len(args) > 0 {
		return "no such command"
	}
	if len(args) == 0 {
		return ""
	}
	if err := c.ValidateArgs(args); err != nil {
		return err.Error()
	}
	return ""
}
