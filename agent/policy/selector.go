package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// labelSelector is a label selector as sorted requirements, all of which must hold. Without requirements it selects
// everything.
type labelSelector []requirement

// requirement is a condition on one label. Values are sorted.
type requirement struct {
	label    string
	operator metav1.LabelSelectorOperator
	values   []string
}

func parseSelector(s *metav1.LabelSelector) (labelSelector, error) {
	if errs := validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, field.NewPath("selector")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	var out labelSelector
	for label, value := range s.MatchLabels {
		out = append(out, requirement{label, metav1.LabelSelectorOpIn, []string{value}})
	}
	for _, e := range s.MatchExpressions {
		values := slices.Clone(e.Values)
		slices.Sort(values)
		out = append(out, requirement{e.Key, e.Operator, slices.Compact(values)})
	}
	slices.SortFunc(out, func(a, b requirement) int { return strings.Compare(a.key(), b.key()) })
	return out, nil
}

func (r requirement) key() string {
	b := strconv.AppendQuote(nil, r.label)
	b = append(b, r.operator...)
	for _, v := range r.values {
		b = strconv.AppendQuote(b, v)
	}
	return string(b)
}

// key is equal for equal selectors.
func (s labelSelector) key() string {
	var b strings.Builder
	for _, r := range s {
		b.WriteString(r.key())
	}
	return b.String()
}

func (s labelSelector) matches(labels map[string]string) bool {
	for _, r := range s {
		if !r.matches(labels) {
			return false
		}
	}
	return true
}

func (r requirement) matches(labels map[string]string) bool {
	value, has := labels[r.label]
	switch r.operator {
	case metav1.LabelSelectorOpIn:
		return has && slices.Contains(r.values, value)
	case metav1.LabelSelectorOpNotIn: // also without the label
		return !has || !slices.Contains(r.values, value)
	case metav1.LabelSelectorOpExists:
		return has
	default:
		return !has
	}
}

// equality returns a label with the one value that the selector requires, or false.
func (s labelSelector) equality() (labelValue, bool) {
	for _, r := range s {
		if r.operator == metav1.LabelSelectorOpIn && len(r.values) == 1 {
			return labelValue{r.label, r.values[0]}, true
		}
	}
	return labelValue{}, false
}

// labelValue is a label with its value.
type labelValue struct{ label, value string }

// podSelector selects pods: by their labels, in one namespace or in the namespaces with some labels.
type podSelector struct {
	namespace  string // "": see namespaces
	namespaces labelSelector
	pods       labelSelector
	known      bool // only pods of known namespaces
}

func (s podSelector) key() string {
	key := fmt.Sprintf("%q %s / %s", s.namespace, s.namespaces.key(), s.pods.key())
	if s.known {
		key += " known"
	}
	return key
}

// matches reports whether the selector selects a pod. A namespace that is not known yet has no labels: only a selector
// without a condition on namespaces selects its pods.
func (s podSelector) matches(namespace string, known bool, namespaceLabels, labels map[string]string) bool {
	switch {
	case s.namespace != "":
		if s.namespace != namespace {
			return false
		}
	case len(s.namespaces) > 0 && (!known || !s.namespaces.matches(namespaceLabels)):
		return false
	case s.known && !known:
		return false
	}
	return s.pods.matches(labels)
}
