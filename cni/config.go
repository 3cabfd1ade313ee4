package cni

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// PluginConf has the keys of every plugin's configuration; embed it. Source: specification, sections 1 and 3.
type PluginConf struct {
	CNIVersion   string          `json:"cniVersion,omitempty"`
	Name         string          `json:"name,omitempty"`
	Type         string          `json:"type,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	IPAM         IPAMConf        `json:"ipam,omitzero"`
	DNS          DNS             `json:"dns,omitzero"`

	RawPrevResult json.RawMessage `json:"prevResult,omitempty"`
	// ValidAttachments is set for GC, since 1.1.0.
	ValidAttachments []Attachment `json:"cni.dev/valid-attachments,omitempty"`
}

// IPAMConf has the type of the IPAM plugin, which reads the other keys.
type IPAMConf struct {
	Type string `json:"type,omitempty"`
}

// HasPrevResult reports whether the configuration has the result of an earlier plugin. null is none.
func (c *PluginConf) HasPrevResult() bool {
	raw := bytes.TrimSpace(c.RawPrevResult)
	return len(raw) > 0 && string(raw) != "null"
}

// Attachment identifies one attachment to a network, as in GC's list.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// ConfigError is a problem in a configuration, and its position.
type ConfigError struct {
	File    string // "" for standard input
	Line    int    // from 1; 0: unknown
	Column  int    // from 1, in bytes
	Key     string // path of the key: "ipam.ranges[0][0].subnet"; "": the whole configuration
	Value   string // the value as written, shortened; "": absent
	Problem string // what is wrong with it, and what is allowed

	cause error
}

// Unwrap returns the decoder's error, if decoding failed.
func (e *ConfigError) Unwrap() error { return e.cause }

func (e *ConfigError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteByte(':')
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Key != "" {
		b.WriteString(e.Key)
		if e.Value != "" {
			b.WriteString(" = " + e.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Problem)
	return b.String()
}
