package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// printResult prints a result as cnitool does, with a final newline.
func (s *session) printResult(res *cni.Result) error {
	text, err := resultText(res, s.list.CNIVersion)
	if err != nil {
		return err
	}
	if s.format == formatYAML {
		return printYAML(s.stdout, json.RawMessage(text))
	}
	_, err = fmt.Fprintln(s.stdout, text)
	return err
}

// resultText returns a result in a network's version, indented by four. The reference sorts the keys from version 1.0.0
// on.
func resultText(res *cni.Result, version string) (string, error) {
	raw, err := wire.Encode(res, version)
	if err != nil {
		return "", err
	}
	var sorted map[string]any
	if cni.AtLeast(version, "1.0.0") {
		if err := json.Unmarshal(raw, &sorted); err != nil {
			return "", err
		}
		raw, err = json.MarshalIndent(sorted, "", "    ")
		return string(raw), err
	}
	var out bytes.Buffer
	err = json.Indent(&out, raw, "", "    ")
	return out.String(), err
}
