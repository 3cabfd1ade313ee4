package delegate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/podnet/request"
)

// podRequest is a pod and the networks that its annotations select, the default network first.
type podRequest struct {
	request.Pod
	chosen bool // a network is the default route
}

// requested returns what the pod's annotations ask for, or nil if they ask for nothing.
func (c *podCall) requested() (*podRequest, error) {
	raw, ok := c.runtime.Get(PodAnnotations)
	if !ok {
		return nil, nil
	}
	var annotations map[string]string
	if err := rawjson.Decode(raw, &annotations); err != nil {
		return nil, cni.Invalid(c.args.StdinData, "runtimeConfig", PodAnnotations+": want an object of strings")
	}
	maps.DeleteFunc(annotations, func(key, value string) bool {
		return !concerns(key) || isSelection(key) && strings.TrimSpace(value) == ""
	})
	if len(annotations) == 0 {
		return nil, nil
	}
	r := &podRequest{Pod: request.Pod{ID: c.args.ContainerID, Netns: c.args.Netns, Networks: []request.Network{{IfName: c.args.IfName}}}}
	if err := r.identify(c.args.Args); err != nil {
		return nil, err
	}
	if _, ok := annotations[request.AnnotationNetworks]; ok && r.Namespace == "" {
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_ARGS has no K8S_POD_NAMESPACE, which the annotation %s needs", request.AnnotationNetworks)
	}
	err := r.Annotate(annotations)
	if err == nil {
		err = r.Validate()
	}
	if err == nil && r.Networks[0].IfName != c.args.IfName {
		err = cni.Errorf(cni.CodeInvalidEnvironment, "the interface of the default network is %s: remove the interface %s from the annotation", c.args.IfName, r.Networks[0].IfName)
	}
	if err != nil {
		return nil, r.of(err)
	}
	r.chosen = slices.ContainsFunc(r.Networks, func(n request.Network) bool { return n.DefaultRoute != nil })
	return r, nil
}

// isSelection reports whether an annotation selects networks.
func isSelection(key string) bool {
	return slices.Contains([]string{request.AnnotationNetworks, request.AnnotationDefaultNetwork, request.Prefix + "networks", request.Prefix + "default-network"}, key)
}

// concerns reports whether an annotation asks for something. The runtime itself turns the annotations about bandwidth of
// kubernetes.io into arguments.
func concerns(key string) bool {
	return isSelection(key) || strings.HasPrefix(key, request.Prefix) && key != request.Prefix+"labels"
}

// identify reads the pod's name from CNI_ARGS.
func (r *podRequest) identify(cniArgs string) error {
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return err
	}
	r.Namespace, _ = args.Get("K8S_POD_NAMESPACE")
	r.Name, _ = args.Get("K8S_POD_NAME")
	r.UID, _ = args.Get("K8S_POD_UID")
	return nil
}

// of adds the pod to an error, and keeps its code.
func (r *podRequest) of(err error) error {
	if err == nil || r.Name == "" {
		return err
	}
	return fmt.Errorf("pod %s/%s: %w", r.Namespace, r.Name, err)
}
