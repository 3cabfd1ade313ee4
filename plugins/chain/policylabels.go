package chain

import (
	"maps"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// labelSources are the places where a configuration can have a container's labels.
type labelSources struct {
	Labels map[string]string `json:"labels"` // of all containers of the network
	Args   struct {
		CNI struct {
			Labels []struct{ Key, Value string } `json:"labels"`
		} `json:"cni"`
	} `json:"args"`
	Runtime struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
	} `json:"runtimeConfig"`
}

// These have labels as "KEY=VALUE,KEY=VALUE" in annotations, and as "KEY:VALUE,KEY:VALUE" in CNI_ARGS, whose values
// cannot contain "=".
const (
	labelsAnnotation = "fairlead.io/labels"
	labelsArgument   = "LABELS"
)

// labels returns the container's labels. Later sources replace earlier ones: the network's, args.cni.labels, CNI_ARGS, the
// annotation.
func (c *policyConf) labels(args cni.Args) (map[string]string, error) {
	out := map[string]string{}
	maps.Copy(out, c.Labels)
	for _, l := range c.Args.CNI.Labels {
		out[l.Key] = l.Value
	}
	inArgs, _ := args.Get(labelsArgument)
	for _, from := range []struct{ text, sign, where string }{{inArgs, ":", "CNI_ARGS: " + labelsArgument}, {c.Runtime.Annotations[labelsAnnotation], "=", "annotation " + labelsAnnotation}} {
		for pair := range strings.SplitSeq(from.text, ",") {
			if strings.TrimSpace(pair) == "" {
				continue
			}
			key, value, ok := strings.Cut(pair, from.sign)
			if !ok {
				return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "%s: %q: want KEY%sVALUE,KEY%sVALUE", from.where, from.text, from.sign, from.sign)
			}
			out[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	for key, value := range out {
		if !isLabel(key, value) {
			return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "label %q=%q: want at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", key, value)
		}
	}
	return out, nil
}

// isLabel reports whether a label is one in Kubernetes, so that a selector can select it. The key may have the name of a
// domain before it: "example.com/app".
func isLabel(key, value string) bool {
	domain, name, found := strings.Cut(key, "/")
	if !found {
		domain, name = "", key
	}
	return isLabelPart(name, 63) && (!found || isLabelPart(domain, 253)) && (value == "" || isLabelPart(value, 63))
}

func isLabelPart(s string, longest int) bool {
	if s == "" || len(s) > longest {
		return false
	}
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		inside := i > 0 && i < len(s)-1 && strings.IndexByte("-_.", c) >= 0
		if !alnum && !inside {
			return false
		}
	}
	return true
}
