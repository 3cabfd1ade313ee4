package main

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/install/cluster"
)

// kubernetesTimeout is the default time for which a command waits for the nodes of a cluster.
const kubernetesTimeout = 5 * time.Minute

// kubernetesFlags are the flags of the commands for a Kubernetes cluster.
type kubernetesFlags struct {
	kubeconfig, context string
	namespace           string
	set, files          []string
	podCIDRs            []string
	timeout             time.Duration
	dry                 bool
}

func (a *app) kubernetesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "kubernetes COMMAND", DisableFlagsInUseLine: true, Short: "install, check and remove Fairlead in a Kubernetes cluster", GroupID: "cluster",
		Long: "Kubernetes makes Fairlead the pod network of a Kubernetes cluster. It uses the cluster of the\n" +
			"current context of the kubeconfig, as kubectl does. See docs/kubernetes.md.",
		Example: "  fairlead kubernetes install\n  fairlead kubernetes status\n  fairlead kubernetes uninstall --dry-run",
		Args:    cobra.ArbitraryArgs, RunE: groupCommand,
	}
	c.AddCommand(a.kubernetesManifest(), a.kubernetesInstall(), a.kubernetesStatus(), a.kubernetesUninstall(), a.kubernetesProbe(), a.kubernetesClean())
	return c
}

// addAccess adds the flags that name the cluster.
func (f *kubernetesFlags) addAccess(c *cobra.Command) {
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "Kubeconfig `FILE` (default: KUBECONFIG, or ~/.kube/config).")
	c.Flags().StringVar(&f.context, "context", "", "`NAME` of a context in the kubeconfig (default: its current context).")
	_ = c.MarkFlagFilename("kubeconfig") // the flag exists
}

func (f *kubernetesFlags) addNamespace(c *cobra.Command) {
	c.Flags().StringVar(&f.namespace, "namespace", kubernetes.DefaultNamespace, "`NAME` of the namespace of the agents.")
}

// addValues adds the flags that change the manifest.
func (f *kubernetesFlags) addValues(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.set, "set", nil, "Value of the chart, `KEY=VALUE`, such as network.nat=false. The value is YAML. May be repeated.")
	c.Flags().StringArrayVar(&f.files, "values", nil, "`FILE` with values of the chart. May be repeated; later files and --set override earlier ones.")
	_ = c.MarkFlagFilename("values", "yaml", "json")
}

func (f *kubernetesFlags) addTimeout(c *cobra.Command, what string) {
	durationVar(c.Flags(), &f.timeout, "timeout", kubernetesTimeout, "Longest wait for "+what+".")
}

// check reports flags that are not valid.
func (f *kubernetesFlags) check(c *cobra.Command) error {
	if !namespaceName.MatchString(f.namespace) {
		return &usageError{fmt.Sprintf("--namespace %q: want lower-case letters, digits and '-'", f.namespace), "Type: " + c.CommandPath() + " --help"}
	}
	return nil
}

var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) // RFC 1123 label

// manifest returns what to render: the values of the files and then those of --set.
func (f *kubernetesFlags) manifest() (o kubernetes.Options, err error) {
	o = kubernetes.Options{Values: kubernetes.Values{}, Namespace: f.namespace, Version: releaseTag(cni.Version())}
	for _, file := range f.files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return o, fmt.Errorf("--values: %w", err)
		}
		v, err := kubernetes.Parse(file, raw)
		if err != nil {
			return o, err
		}
		o.Values.Merge(v)
	}
	for _, text := range f.set {
		v, err := kubernetes.Set(text)
		if err != nil {
			if err = fmt.Errorf("--set %w", err); exitCode(err) != exitInvalid {
				err = &usageError{err.Error(), "Type: fairlead kubernetes manifest --help"}
			}
			return o, err
		}
		o.Values.Merge(v)
	}
	return o, nil
}

var releaseVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)[.0-9]*)?$`)

// releaseTag returns the image's tag of a release. A development version has none: the chart's appVersion applies.
func releaseTag(version string) string {
	if releaseVersion.MatchString(version) {
		return version
	}
	return ""
}

// ranges parses --pod-cidr.
func (f *kubernetesFlags) ranges() (list []netip.Prefix, err error) {
	for _, text := range f.podCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("--pod-cidr %s: want a range like 10.244.0.0/16", text), "Type: fairlead kubernetes install --help"}
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// connect returns a client for the cluster.
func (a *app) connect(f *kubernetesFlags) (*cluster.Client, error) {
	return cluster.Connect(cluster.Access{Kubeconfig: f.kubeconfig, Paths: a.kubeconfigs(), Context: f.context, InCluster: a.getenv("KUBERNETES_SERVICE_HOST") != ""})
}

func (a *app) kubernetesManifest() *cobra.Command {
	f := &kubernetesFlags{}
	c := &cobra.Command{
		Use: "manifest", Short: "print the manifest of the agents",
		Long: "Manifest prints the objects that make Fairlead a cluster's pod network, for kubectl apply. The\n" +
			"values and their meaning are in contrib/kubernetes/chart/values.yaml. Unlike install, it does\n" +
			"not know the cluster: set network.subnets to the cluster's pod ranges.",
		Example: "  fairlead kubernetes manifest | kubectl apply -f -\n  fairlead kubernetes manifest --set 'network.subnets=[{cidr: 10.0.0.0/16, assign: podCIDR}]' --values my.yaml",
		Args:    want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			if a.format == formatJSON {
				return &usageError{"the manifest is YAML with comments: it has no JSON form", "Type the command without --json and -o json"}
			}
			o, err := f.manifest()
			if err != nil {
				return err
			}
			raw, err := kubernetes.Manifest(o)
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(raw)
			return err
		},
	}
	f.addValues(c)
	f.addNamespace(c)
	return c
}
