package config

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/kube"
)

// KubernetesClient returns a client of the API that is the cluster's store.
func (c *Config) KubernetesClient() (rest.Interface, error) {
	return kube.Client(c.Store.Kubernetes.options())
}

// KubernetesConfig returns the configuration of a client of the Kubernetes API that is the store.
func (c *Config) KubernetesConfig() (*rest.Config, error) {
	return kube.RESTConfig(c.Store.Kubernetes.options())
}

func (k Kubernetes) options() kube.Options {
	if k.Kubeconfig == InCluster {
		k.Kubeconfig = ""
	}
	return kube.Options{Kubeconfig: k.Kubeconfig, Namespace: k.Namespace}
}

// Open opens the cluster's store. It does not wait for it: if the store is unavailable, the first call fails.
func (c *Config) Open() (store.Store, error) {
	if k := c.Store.Kubernetes; k.Kubeconfig != "" {
		o := k.options()
		o.Flannel = c.Flannel.Prefix
		return kube.Open(o)
	}
	e := c.Store.Etcd
	if len(e.Endpoints) == 0 {
		return store.File(c.Store.File)
	}
	o := store.Options{Endpoints: e.Endpoints, Prefix: e.Prefix, CACert: e.CACert, Cert: e.Cert, Key: e.Key, Username: e.Username}
	if c.Flannel.Prefix != "" {
		o.Mounts = map[string]string{cluster.FlannelPrefix: strings.TrimSuffix(c.Flannel.Prefix, "/") + "/"}
	}
	if e.PasswordFile != "" {
		if _, err := os.Stat(e.PasswordFile); err != nil {
			return nil, fmt.Errorf("store.etcd.passwordFile: %w", err)
		}
		o.PasswordFile = e.PasswordFile
	}
	return store.Etcd(o)
}
