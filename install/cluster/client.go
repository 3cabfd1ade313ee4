package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/internal/yamlerr"
)

// Access says which cluster to connect to.
type Access struct {
	Kubeconfig string   // path that the user named; "": Paths
	Paths      []string // kubeconfig files that kubectl would merge
	Context    string   // in the kubeconfig; "": its current context
	InCluster  bool     // without a kubeconfig, use the service account of this pod
}

// Client reads and writes the objects of one cluster.
type Client struct {
	rest   rest.Interface
	config *rest.Config
	server string
	source string // kubeconfig, for errors
}

// Connect reads the kubeconfig. It does not call the API: Version does. The error is os.ErrNotExist if there is none.
func Connect(a Access) (*Client, error) {
	paths := a.Paths
	if a.Kubeconfig != "" {
		paths = []string{a.Kubeconfig}
	}
	if !slices.ContainsFunc(paths, exists) {
		if a.Kubeconfig == "" && a.InCluster {
			config, err := rest.InClusterConfig()
			if err != nil {
				return nil, fmt.Errorf("the service account of this pod: %w", err)
			}
			return New(config, "the service account of this pod")
		}
		return nil, missingError(fmt.Sprintf("there is no kubeconfig %s\nName the file with --kubeconfig or in KUBECONFIG; kubeadm writes /etc/kubernetes/admin.conf", strings.Join(paths, ", ")))
	}
	source := strings.Join(paths, ", ")
	raw, err := (&clientcmd.ClientConfigLoadingRules{Precedence: paths}).Load()
	if err != nil {
		return nil, yamlerr.Kubeconfig(err)
	}
	name := cmp.Or(a.Context, raw.CurrentContext)
	contexts := cmp.Or(strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "), "none")
	switch of := raw.Contexts[name]; {
	case name == "":
		return nil, fmt.Errorf("the kubeconfig %s has no current context\nName one with --context; there are: %s", source, contexts)
	case of == nil:
		return nil, fmt.Errorf("the kubeconfig %s has no context %q\nName another with --context; there are: %s", source, name, contexts)
	case of.AuthInfo != "" && raw.AuthInfos[of.AuthInfo] == nil:
		return nil, fmt.Errorf("the kubeconfig %s has no user %q, which its context %q names\nName another context with --context; there are: %s", source, of.AuthInfo, name, contexts)
	case raw.Clusters[of.Cluster] == nil:
		return nil, fmt.Errorf("the kubeconfig %s has no cluster %q, which its context %q names\nName another context with --context; there are: %s", source, of.Cluster, name, contexts)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %s: %w", source, err)
	}
	return New(config, source)
}

// missingError reports that there is no kubeconfig.
type missingError string

func (e missingError) Error() string { return string(e) }

// Is makes the error match os.ErrNotExist.
func (e missingError) Is(target error) bool { return target == os.ErrNotExist }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Requests per second, and at once, that a command sends at most, and the time for which it waits for an answer.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
	answerWithin      = time.Minute
)

// New returns a client for a configuration. Errors name its source.
func New(config *rest.Config, source string) (*Client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the errors
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.UserAgent, c.Timeout = requestsPerSecond, requestsAtOnce, "fairlead", answerWithin
	kube.LimitAnswers(c)
	c.GroupVersion, c.NegotiatedSerializer = &schema.GroupVersion{}, serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %s: %w", source, err)
	}
	return &Client{rest: client, config: config, server: c.Host, source: source}, nil
}

// Config returns the configuration of the client.
func (c *Client) Config() *rest.Config { return c.config }

// Server returns the address of the API server.
func (c *Client) Server() string { return c.server }

// The oldest supported version of Kubernetes: the policies and the rules in the manifest need it.
const oldestMinor = 33

// Version returns the version of the API server, such as "v1.37.2". The error says what to do if the server does not
// answer or is too old.
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct{ Major, Minor, GitVersion string }
	if err := c.get(ctx, &v, "/version"); err != nil {
		return "", err
	}
	major, _ := strconv.Atoi(v.Major)
	minor, _ := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if major < 1 || major == 1 && minor < oldestMinor {
		return "", fmt.Errorf("the API server %s runs Kubernetes %s: Fairlead needs 1.%d or newer; upgrade the cluster first", c.server, v.GitVersion, oldestMinor)
	}
	return v.GitVersion, nil
}

// get reads the object at a path. The error of an object that does not exist is os.ErrNotExist.
func (c *Client) get(ctx context.Context, into any, path string) error {
	raw, err := kube.Body(c.rest.Get().AbsPath(path).Do(ctx))
	if err != nil {
		return c.Explain("read "+path, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read %s from %s: %w\nThe server is perhaps not an API server of Kubernetes: check the kubeconfig %s", path, c.server, err, c.source)
	}
	return nil
}

// pageSize is the number of objects that one request lists.
const pageSize = 500

// list reads all objects of a resource that a label selector selects.
func list[T any](ctx context.Context, c *Client, path, selector string) (items []T, err error) {
	for next := ""; ; {
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		raw, err := kube.Body(c.rest.Get().AbsPath(path).Param("limit", strconv.Itoa(pageSize)).Param("continue", next).Param("labelSelector", selector).Do(ctx))
		if err != nil {
			return nil, c.Explain("list "+path, err)
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("list %s: %w", path, err)
		}
		items = append(items, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return items, nil
		}
	}
}

// isLimit reports whether an administrator may not do something either, because of a quota or of an admission policy. The
// API has no other sign than the text.
func isLimit(err error) bool {
	return slices.ContainsFunc([]string{"exceeded quota", "denied the request", "denied request"}, func(s string) bool { return strings.Contains(err.Error(), s) })
}

// noAnswerError is the error of a request that the API server did not answer, or not completely.
type noAnswerError struct{ error }

func (e noAnswerError) Unwrap() error { return e.error }

// Explain returns an error of the API with what to do about it.
func (c *Client) Explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case strings.Contains(err.Error(), "would exceed context deadline"): // the client's limit of requests; it has no type
		return fmt.Errorf("%s: %w", what, context.DeadlineExceeded)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server %s does not accept the credentials in %s\nGet a new kubeconfig for this cluster, or name another with --kubeconfig or --context", what, c.server, c.source)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%s: %w\nWait until the namespace has gone, and type the command again", what, err)
	case apierrors.IsForbidden(err) && !isLimit(err):
		return fmt.Errorf("%s: %w\nUse the kubeconfig of an administrator of the cluster: see --kubeconfig and --context", what, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", what, err, os.ErrNotExist)
	}
	if strings.Contains(err.Error(), "getting credentials: ") { // the client's error of a plugin; it has no type
		return fmt.Errorf("the kubeconfig %s gives no credentials for %s: %w\nLog in again, or name another kubeconfig or context with --kubeconfig or --context", c.source, c.server, err)
	}
	if cert, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return fmt.Errorf("the kubeconfig %s does not trust the certificate of %s: %w\nIs it the kubeconfig of this cluster? Name another with --kubeconfig or --context", c.source, c.server, cert.Err)
	}
	if _, known := errors.AsType[*apierrors.StatusError](err); !known {
		return noAnswerError{fmt.Errorf("the API server %s does not answer: %w\nIs it running, and is %s the kubeconfig of this cluster? Name another with --kubeconfig or --context", c.server, err, c.source)}
	}
	return fmt.Errorf("%s: %w", what, err)
}
