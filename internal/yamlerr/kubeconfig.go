package yamlerr

import (
	"regexp"
	"strings"
)

// kubeconfigError is an error of the Kubernetes client with another text.
type kubeconfigError struct {
	text string
	err  error
}

func (e *kubeconfigError) Error() string { return e.text }

func (e *kubeconfigError) Unwrap() error { return e.err }

const wantKubeconfig = `it is not a kubeconfig: want YAML with "apiVersion: v1" and "kind: Config"`

var (
	loading   = regexp.MustCompile(`error loading config file "([^"]*)": `)
	wrongKind = regexp.MustCompile(`couldn't get version/kind; json parse error: .*|no kind "[^"]*" is registered for version .*`)
	wrongKey  = regexp.MustCompile(`json: cannot unmarshal (\w+) into Go struct field \w+\.(\S+) of type (\S+)`)
	empty     = regexp.MustCompile(`invalid configuration: no configuration has been provided.*`)
	outside   = regexp.MustCompile(`unable to load in-cluster configuration.*`)
)

// Kubeconfig returns an error of the Kubernetes client about a kubeconfig without the client's Go types.
func Kubeconfig(err error) error {
	if err == nil {
		return nil
	}
	text := loading.ReplaceAllString(err.Error(), "read the kubeconfig $1: ")
	text = wrongKind.ReplaceAllLiteralString(text, wantKubeconfig)
	kinds := strings.NewReplacer("number", "a number", "string", "text", "bool", "true or false", "array", "a list", "object", "a mapping")
	text = wrongKey.ReplaceAllStringFunc(text, func(s string) string {
		m := wrongKey.FindStringSubmatch(s)
		return m[2] + " is " + kinds.Replace(m[1]) + ": want " + Wanted(m[3])
	})
	text = empty.ReplaceAllLiteralString(text, "the kubeconfig is empty: want a cluster, a user and a current-context")
	text = outside.ReplaceAllLiteralString(text, "in-cluster works only in a pod of the cluster: KUBERNETES_SERVICE_HOST is not set")
	return &kubeconfigError{text, err}
}
