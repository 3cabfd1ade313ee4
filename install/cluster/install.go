package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	model "github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/contrib/kubernetes"
)

// Options say what to install.
type Options struct {
	Manifest kubernetes.Options
	PodCIDRs []netip.Prefix // that the user named
	Force    bool           // next to another pod network
	Flannel  bool           // switch the cluster from flannel
}

// Plan is an installation before its first change.
type Plan struct {
	Version  string // of the API server
	Upgrade  bool   // Fairlead is installed
	Ranges   Ranges // without CIDRs: the user's values or the object Network/default have the ranges
	Others   []Other
	Flannel  *Flannel // to switch from; nil: none
	Kept     bool     // the installation was switched from flannel, whose list and links it keeps
	Warnings []string
	Objects  []*Object // in the order in which they are applied
}

// The paths of all networks, and of the default one.
const (
	networksPath = "/apis/fairlead.io/v1alpha1/networks"
	networkPath  = networksPath + "/" + model.DefaultNetwork
)

// Plan verifies that Fairlead can be installed, and returns the objects.
func (c *Client) Plan(ctx context.Context, o Options) (p *Plan, err error) {
	p = &Plan{}
	if p.Version, err = c.Version(ctx); err != nil {
		return nil, err
	}
	if err := c.checkNamespace(ctx, o.Manifest.Namespace); err != nil {
		return nil, err
	}
	if p.Others, err = c.Others(ctx); err != nil {
		return nil, err
	}
	if len(p.Others) > 0 && !o.Force && !o.Flannel {
		return nil, fmt.Errorf("the cluster has another pod network: %s\n%s", join(p.Others), advice(p.Others))
	}
	if err := c.setFlannel(ctx, p, &o); err != nil {
		return nil, err
	}
	if err := c.setNetwork(ctx, p, &o); err != nil {
		return nil, err
	}
	manifest, err := kubernetes.Render(o.Manifest)
	if err != nil {
		return nil, err
	}
	if p.Objects, err = Parse(manifest); err != nil {
		return nil, err
	}
	set := p.Objects[slices.IndexFunc(p.Objects, func(o *Object) bool { return o.GetKind() == "DaemonSet" })]
	err = c.get(ctx, &struct{}{}, pathOf("DaemonSet", set.GetNamespace())+"/"+set.GetName())
	if p.Upgrade = err == nil; err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return p, c.checkPermissions(ctx, p.Objects, p.Upgrade)
}

// advice says what to do about other pod networks.
func advice(others []Other) string {
	text := "Remove it first, or use --force to install Fairlead next to it"
	switch others[0].Product {
	case k3sFlannel:
		text = "Start k3s with --flannel-backend=none --disable-network-policy first, or use --force to install Fairlead next to it"
	case "flannel":
		text = "To switch from it node by node, without an interruption, type: fairlead kubernetes install --from flannel\n" + text
	}
	return text
}

// setFlannel completes the values of a cluster that is switched from flannel, or was.
func (c *Client) setFlannel(ctx context.Context, p *Plan, o *Options) (err error) {
	values := kubernetes.Values{}
	if o.Flannel {
		if p.Flannel, err = c.findFlannel(ctx, p.Others); err != nil {
			return err
		}
		values.Merge(o.Manifest.Values)
		values.Merge(p.Flannel.values)
		o.Manifest.Values = values
		return nil
	}
	kept, err := c.keepFlannel(ctx, o.Manifest.Namespace)
	if err != nil {
		return err
	}
	p.Kept = kept != nil
	values.Merge(kept)
	values.Merge(o.Manifest.Values)
	o.Manifest.Values = values
	return nil
}

// setNetwork completes the values of the network: those of the object Network/default if it exists; or else the user's;
// or else the cluster's pod ranges.
func (c *Client) setNetwork(ctx context.Context, p *Plan, o *Options) error {
	var object struct{ Spec map[string]any }
	err := c.get(ctx, &object, networkPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	network, _ := o.Manifest.Values["network"].(map[string]any)
	if err == nil {
		if p.Flannel != nil {
			if err := p.Flannel.checkNetwork(object.Spec); err != nil {
				return err
			}
		}
		if !o.Flannel && len(network) > 0 || len(o.PodCIDRs) > 0 {
			p.Warnings = append(p.Warnings, "The network default exists, so this command does not change it. To change it, type: kubectl edit networks.fairlead.io default")
		}
		set(&o.Manifest, existing(object.Spec))
		return nil
	}
	if network["subnets"] != nil {
		return c.checkValues(ctx, o.Manifest)
	}
	defaults, err := defaultRanges()
	if err != nil {
		return err
	}
	if p.Ranges, err = c.FindRanges(ctx, o.PodCIDRs, defaults); err != nil {
		return err
	}
	if err := c.CheckFree(ctx, p.Ranges.CIDRs); err != nil {
		return err
	}
	var subnets []any
	for _, r := range p.Ranges.CIDRs {
		subnets = append(subnets, map[string]any{"cidr": r.String(), "assign": p.Ranges.Assign})
	}
	set(&o.Manifest, map[string]any{"subnets": subnets})
	return nil
}

// set merges values of the network over the user's values, which do not change.
func set(m *kubernetes.Options, network map[string]any) {
	values := kubernetes.Values{"network": map[string]any{}}
	values.Merge(m.Values)
	values.Merge(kubernetes.Values{"network": network})
	m.Values = values
}

// existing returns the values of an existing network. Values that it lacks replace the chart's defaults.
func existing(spec map[string]any) map[string]any {
	values := map[string]any{"nat": false, "backends": []any{}, "mtu": nil}
	for _, key := range []string{"subnets", "nat", "backends", "mtu"} {
		if v, has := spec[key]; has {
			values[key] = v
		}
	}
	return values
}

// checkValues checks the subnets in the user's values. Render reports other errors in them.
func (c *Client) checkValues(ctx context.Context, m kubernetes.Options) error {
	n, err := networkOf(m.Values["network"])
	if err != nil {
		return nil
	}
	var ranges []netip.Prefix
	for _, s := range n.Subnets {
		if s.CIDR.IsValid() {
			ranges = append(ranges, s.CIDR)
		}
	}
	return c.CheckFree(ctx, ranges)
}

// defaultRanges returns the subnets in the chart's default values.
func defaultRanges() (list []netip.Prefix, err error) {
	values, err := kubernetes.Defaults()
	if err != nil {
		return nil, err
	}
	n, err := networkOf(values["network"])
	if err != nil {
		return nil, err
	}
	for _, s := range n.Subnets {
		list = append(list, s.CIDR)
	}
	return list, nil
}

// networkOf decodes a network in the chart's values, or the spec of one.
func networkOf(values any) (n model.Network, err error) {
	raw, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(raw, &n)
	}
	return n, err
}

// checkPermissions asks the API whether the user may apply every object, before the first one is applied. An object that
// does not exist needs two verbs. In an upgrade, the objects exist.
func (c *Client) checkPermissions(ctx context.Context, objects []*Object, upgrade bool) error {
	asked, denied := map[string]bool{}, []string{}
	for _, o := range objects {
		r, err := resourceOf(o.GetKind())
		if err != nil {
			return err
		}
		if asked[r.plural] {
			continue
		}
		asked[r.plural] = true
		allowed, err := c.may(ctx, r, o.GetNamespace(), "patch")
		if err == nil && allowed && !upgrade {
			allowed, err = c.may(ctx, r, o.GetNamespace(), "create")
		}
		if err != nil {
			return err
		}
		if !allowed {
			denied = append(denied, r.plural)
		}
	}
	if len(denied) > 0 {
		return fmt.Errorf("the user of %s may not create: %s\nUse the kubeconfig of an administrator of the cluster: see --kubeconfig and --context", c.source, strings.Join(denied, ", "))
	}
	return nil
}

// may asks the API whether the user may do something.
func (c *Client) may(ctx context.Context, r resource, namespace, verb string) (bool, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{"group": r.group, "resource": r.plural, "namespace": namespace, "verb": verb}},
	})
	if err != nil {
		return false, err
	}
	raw, err := kube.Body(c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").SetHeader("Content-Type", "application/json").Body(body).Do(ctx))
	if err != nil {
		return false, c.Explain("ask for permissions", err)
	}
	var review struct{ Status struct{ Allowed bool } }
	return json.Unmarshal(raw, &review) == nil && review.Status.Allowed, nil
}
