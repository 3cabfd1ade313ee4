package skel

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// maxStdin bounds a configuration, in bytes. GC on a host with many thousands of attachments needs a few million.
const maxStdin = 16 << 20

// conf has the keys of every configuration; the plugin reads the rest.
type conf struct {
	cniVersion string
	name       string
}

func (c *call) readConf(stdin io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure, "read the configuration from stdin: %w", err)
	}
	if len(data) > maxStdin {
		return cni.Errorf(cni.CodeDecodingFailure, "the configuration on stdin is longer than %d bytes", maxStdin)
	}
	c.args.StdinData = data
	if err := c.conf.decode(data); err != nil {
		return cni.Errorf(cni.CodeDecodingFailure, "decode the configuration from stdin: %w", err)
	}
	return nil
}

func (c *conf) decode(data []byte) error {
	if err := cni.Check(data); err != nil {
		return err
	}
	members, err := rawjson.Members(data)
	if err != nil {
		return cni.Invalid(data, "", "want an object")
	}
	for _, m := range members {
		var into *string
		switch strings.ToLower(m.Key) {
		case "cniversion":
			into = &c.cniVersion
		case "name":
			into = &c.name
		default:
			continue
		}
		if *into, err = rawjson.Unquote(m.Raw); err != nil && string(m.Raw) != "null" {
			return cni.Invalid(data, m.Key, "want a string")
		}
	}
	if c.cniVersion == "" {
		c.cniVersion = "0.1.0" // the specification's version before it had this key
	}
	return nil
}

// checkVersion rejects a configuration whose version the plugin does not support, or which is older than the operation.
func checkVersion(supported []string, version, command, since string) error {
	if !slices.Contains(supported, version) {
		return cni.Errorf(cni.CodeIncompatibleVersion, "incompatible CNI versions").
			WithDetails(fmt.Sprintf("config is %q, plugin supports %q", version, supported))
	}
	if !cni.AtLeast(version, since) {
		return cni.Errorf(cni.CodeIncompatibleVersion, "config version does not allow %s", command).
			WithDetails(fmt.Sprintf("config is %q, %s needs %q or newer", version, command, since))
	}
	return nil
}

// protocolError gives every error a code. For a rejected value, msg names the key and the value. The position goes into
// details, because the configuration that a plugin gets is not the file that a person wrote.
func protocolError(err error) *cni.Error {
	var e *cni.Error
	c, ok := errors.AsType[*cni.ConfigError](err)
	if !ok || errors.As(err, &e) {
		return cni.AsError(err)
	}
	bare := *c
	bare.File, bare.Line, bare.Column = "", 0, 0
	msg := strings.Replace(err.Error(), c.Error(), bare.Error(), 1)
	e = cni.Errorf(cni.CodeInvalidNetworkConfig, "%s", msg)
	if c.Line > 0 {
		e.Details = cni.PositionDetails(c.Line, c.Column)
	}
	return e
}
