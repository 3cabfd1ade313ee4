package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Call is a runtime's call of a plugin.
type Call struct {
	Command string
	Env     []string        // only the variables CNI_*
	Config  json.RawMessage // standard input, unchanged
}

// record appends the call to the file named in the configuration, and answers like a plugin that does nothing.
func record() error {
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var conf struct {
		Log        string          `json:"log"`
		PrevResult json.RawMessage `json:"prevResult"`
	}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return err
	}
	call := Call{Command: os.Getenv("CNI_COMMAND"), Config: raw}
	call.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return !strings.HasPrefix(v, "CNI_") })
	if err := appendLine(conf.Log, call); err != nil {
		return err
	}
	switch call.Command {
	case "VERSION":
		fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`)
	case "ADD":
		fmt.Println(string(conf.PrevResult))
	}
	return nil
}

// appendLine writes v with a single write call, because plugins of many containers run concurrently.
func appendLine(file string, v any) error {
	if file == "" { // VERSION has no configuration
		return nil
	}
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}
