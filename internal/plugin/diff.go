package plugin

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// renderDiff compares one object in unified form, with who made the differences ahead of
// it; empty where there are none.
func (v view) renderDiff(p apply.Preview) (string, error) {
	live, result := p.Live, p.Result
	if p.Object.GVK.Kind == "Secret" {
		live, result = maskSecret(live, result)
	}
	from, err := marshalDocument(p, live)
	if err != nil {
		return "", err
	}
	to, err := marshalDocument(p, result)
	if err != nil || from == to {
		return "", err
	}
	name := strings.ToLower(p.Object.GVK.Kind) + "/" + p.Object.Name
	text, err := udiff.ToUnified("live/"+name, "declared/"+name, from, udiff.Lines(from, to), udiff.DefaultContextLines)
	if err != nil {
		return "", fmt.Errorf("compare %s: %w", p.Object, err)
	}
	var b strings.Builder
	for _, d := range p.Drifts {
		who := d.Manager
		if d.Subresource != "" {
			who += " (" + d.Subresource + ")"
		}
		since := ""
		if d.ManagerTime != nil {
			since = ", " + v.formatAge(*d.ManagerTime) + " ago"
		}
		fmt.Fprintf(&b, "# %s by %s (%s%s)\n", d.Path, orDash(who), d.Operation, since)
	}
	if live == nil {
		fmt.Fprintf(&b, "# %s is missing\n", p.Object)
	}
	for _, line := range strings.SplitAfter(text, "\n") {
		b.WriteString(v.diffLine(line))
	}
	return b.String(), nil
}

func (v view) diffLine(line string) string {
	body, newline := strings.CutSuffix(line, "\n")
	paint := plain
	switch {
	case strings.HasPrefix(body, "---"), strings.HasPrefix(body, "+++"):
		paint = bold
	case strings.HasPrefix(body, "-"):
		paint = red
	case strings.HasPrefix(body, "+"):
		paint = green
	case strings.HasPrefix(body, "@@"):
		paint = cyan
	}
	body = v.paintText(paint, body)
	if newline {
		body += "\n"
	}
	return body
}

// marshalDocument is an object's content as people read it, without what the API
// server counts up.
func marshalDocument(p apply.Preview, content map[string]any) (string, error) {
	if content == nil {
		return "", nil
	}
	full := runtime.DeepCopyJSON(content)
	full["apiVersion"], full["kind"] = p.Object.GVK.GroupVersion().String(), p.Object.GVK.Kind
	if metadata, isMap := full["metadata"].(map[string]any); isMap {
		delete(metadata, "creationTimestamp")
		delete(metadata, "uid")
	}
	data, err := yaml.Marshal(full)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", p.Object, err)
	}
	return string(data), nil
}

// What stands in place of a Secret's values, as kubectl diff has it.
const (
	masked       = "***"
	maskedBefore = "*** (before)"
	maskedAfter  = "*** (after)"
)

// maskSecret hides the values of a Secret, and keeps whether they differ. An
// annotation may quote the whole Secret, so all but Holdfast's own are hidden
// too; the hash is one of the content.
func maskSecret(live, result map[string]any) (maskedLive, maskedResult map[string]any) {
	copyOf := func(content map[string]any) map[string]any {
		if content == nil {
			return nil
		}
		return runtime.DeepCopyJSON(content)
	}
	live, result = copyOf(live), copyOf(result)
	for _, field := range [][]string{{"data"}, {"stringData"}, {"metadata", "annotations"}} {
		maskValues(contentBelow(live, field), contentBelow(result, field))
	}
	return live, result
}

func contentBelow(content map[string]any, path []string) map[string]any {
	for _, name := range path {
		content, _ = content[name].(map[string]any)
	}
	return content
}

func maskValues(before, after map[string]any) {
	for key, old := range before {
		if key == v1alpha1.AnnotationAppliedHash {
			continue
		}
		value, kept := after[key]
		switch {
		case !kept:
			before[key] = masked
		case reflect.DeepEqual(old, value):
			before[key], after[key] = masked, masked
		default:
			before[key], after[key] = maskedBefore, maskedAfter
		}
	}
	for key := range after {
		if _, was := before[key]; !was && key != v1alpha1.AnnotationAppliedHash {
			after[key] = masked
		}
	}
}
