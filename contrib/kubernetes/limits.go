package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/config"
)

// limits returns what is wrong with values of the right type. values.schema.json, which Helm uses, has the same limits.
func (s *shape) limits() error {
	var errs []error
	want := func(ok bool, key string, value any, text string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: want %s", key, value, text))
		}
	}
	oneOf := func(key, value string, list ...string) {
		want(slices.Contains(list, value), key, fmt.Sprintf("%q", value), strings.Join(list, ", "))
	}
	want(s.Image.Repository != "", "image.repository", `""`, "an image without its tag")
	want(digest.MatchString(s.Image.Digest), "image.digest", fmt.Sprintf("%q", s.Image.Digest), `"sha256:" and 64 hexadecimal digits, or ""`)
	oneOf("image.pullPolicy", s.Image.PullPolicy, "Always", "IfNotPresent", "Never")
	oneOf("agent.logLevel", s.Agent.LogLevel, "debug", "info", "warn", "error")
	want(s.Agent.Port >= 1 && s.Agent.Port <= 65535, "agent.port", s.Agent.Port, "a port from 1 to 65535")
	want(path.IsAbs(s.CNI.Directory), "cni.directory", fmt.Sprintf("%q", s.CNI.Directory), "an absolute path")
	want(path.IsAbs(s.CNI.Binaries), "cni.binaries", fmt.Sprintf("%q", s.CNI.Binaries), "an absolute path")
	want(path.IsAbs(s.PodNetworks.Kubelet), "podNetworks.kubelet", fmt.Sprintf("%q", s.PodNetworks.Kubelet), "an absolute path")
	want(listFile.MatchString(s.CNI.File), "cni.file", fmt.Sprintf("%q", s.CNI.File), `a file name that ends in ".conflist"`)
	want(s.Flannel.Prefix != "", "flannel.prefix", `""`, "the prefix of flannel's annotations")
	errs = append(errs, config.CheckList(s.CNI.List))
	isObject := func(raw json.RawMessage, into any) bool { return json.Unmarshal(raw, into) == nil }
	want(isObject(s.NodeSelector, &map[string]string{}), "nodeSelector", string(s.NodeSelector), "labels and their values, which are strings")
	want(isObject(s.Agent.Resources, &map[string]any{}), "agent.resources", string(s.Agent.Resources), "requests and limits")
	for i, x := range s.Tolerations {
		want(len(x) > 0 && x[0] == '{', fmt.Sprintf("tolerations[%d]", i), string(x), "an object such as {operator: Exists}")
	}
	want(isUnavailable(s.MaxUnavailable), "maxUnavailable", string(s.MaxUnavailable), `a number of nodes or a part of them, like 1 or "10%", more than 0`)
	return errors.Join(errs...)
}

var (
	digest   = regexp.MustCompile("^(sha256:[0-9a-f]{64})?$")
	listFile = regexp.MustCompile(`^[^/]+\.conflist$`)
	percent  = regexp.MustCompile("^(100|[1-9][0-9]?)%$")
)

// isUnavailable reports whether a value is one for maxUnavailable of a DaemonSet without surge: it must not be 0.
func isUnavailable(raw json.RawMessage) bool {
	var n int
	if json.Unmarshal(raw, &n) == nil {
		return n > 0
	}
	var text string
	return json.Unmarshal(raw, &text) == nil && percent.MatchString(text)
}
