package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

const templateHeader = "{{- /* Generated from the kustomizations by make generate. Do not edit. */ -}}\n"

// component is a part of kustomize/components that is an option of the chart.
type component struct {
	// file of the templates, and the value that asks for them.
	file, condition string
}

var components = map[string]component{
	"admission-policy":  {"admission-policy.yaml", ".Values.admissionPolicy.enabled"},
	"dashboards":        {"dashboards.yaml", ".Values.dashboards.enabled"},
	"high-availability": {"high-availability.yaml", ".Values.highAvailability.enabled"},
	"monitoring":        {"monitoring.yaml", ".Values.monitoring.enabled"},
	"network-policy":    {"network-policy.yaml", ".Values.networkPolicy.enabled"},
	"namespaced":        {"storage-classes.yaml", ".Values.watchNamespaces"},
}

// renderTemplates writes a template for the plain installation, and one for what
// each component adds to it.
func renderTemplates(root, folder string) error {
	plain, err := kustomization.BuildObjects(root, "resources: [\"{root}/config/default\"]\n")
	if err != nil {
		return err
	}
	if err := renderOperator(plain, folder); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(components)) {
		with, err := kustomization.BuildObjects(root, "resources: [\"{root}/config/default\"]\ncomponents: [\"{root}/kustomize/components/"+name+"\"]\n")
		if err != nil {
			return err
		}
		var added []*unstructured.Unstructured
		for _, object := range with {
			if findObject(plain, object.GetKind(), object.GetName()) == nil {
				added = append(added, object)
			}
		}
		if len(added) == 0 {
			return fmt.Errorf("component %s adds no object", name)
		}
		if err := writeTemplate(folder, components[name].file, "if "+components[name].condition, added); err != nil {
			return err
		}
		if name == "high-availability" {
			if err := renderAffinity(findObject(with, "Deployment", "holdfast"), folder); err != nil {
				return err
			}
		}
	}
	overlay, err := kustomization.BuildObjects(root, "resources: [\"{root}/kustomize/overlays/namespaced\"]\n")
	if err != nil {
		return err
	}
	return renderWatchedNamespaces(overlay, folder)
}

func findObject(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	return nil
}

// renderOperator writes the operator's Deployment, its account and its rights.
func renderOperator(plain []*unstructured.Unstructured, folder string) error {
	var rights, clusterWide, accounts, deployments []*unstructured.Unstructured
	for _, object := range plain {
		switch object.GetKind() {
		case "Namespace", "CustomResourceDefinition": // templates of their own
		case "Deployment":
			if err := openDeployment(object); err != nil {
				return err
			}
			deployments = append(deployments, object)
		case "ServiceAccount":
			object.Object[mark("imagePullSecrets")] = ""
			if err := unstructured.SetNestedField(object.Object, "", "metadata", mark("serviceAccountAnnotations")); err != nil {
				return err
			}
			accounts = append(accounts, object)
		case "ClusterRoleBinding":
			clusterWide = append(clusterWide, object)
		default:
			rights = append(rights, object)
		}
	}
	for _, template := range []struct {
		file, condition string
		objects         []*unstructured.Unstructured
	}{
		{"rbac.yaml", "", rights},
		{"cluster-wide.yaml", "if not .Values.watchNamespaces", clusterWide},
		{"service-account.yaml", "", accounts},
		{"deployment.yaml", "", deployments},
	} {
		if err := writeTemplate(folder, template.file, template.condition, template.objects); err != nil {
			return err
		}
	}
	return nil
}

// openDeployment marks where values change the Deployment.
func openDeployment(object *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("the Deployment has %d containers: %w", len(containers), err)
	}
	manager, isMap := containers[0].(map[string]any)
	args, isList := manager["args"].([]any)
	env, isAlso := manager["env"].([]any)
	if !isMap || !isList || !isAlso {
		return fmt.Errorf("the Deployment's container has no arguments, or no variables: %v", containers[0])
	}
	manager["args"], manager["env"] = append(args, mark("args")), append(env, mark("extraEnv"))
	manager["image"], manager["imagePullPolicy"], manager["resources"] = mark("image"), mark("imagePullPolicy"), mark("resources")
	for _, change := range []struct {
		value any
		path  []string
	}{
		{containers, []string{"spec", "template", "spec", "containers"}},
		{mark("replicas"), []string{"spec", "replicas"}},
		{"", []string{"spec", "template", "metadata", "labels", mark("podLabels")}},
		{"", []string{"spec", "template", "metadata", "annotations", mark("podAnnotations")}},
		{"", []string{"spec", "template", "spec", mark("scheduling")}},
	} {
		if err := unstructured.SetNestedField(object.Object, change.value, change.path...); err != nil {
			return err
		}
	}
	return nil
}

// renderAffinity writes which nodes two operators prefer.
func renderAffinity(deployment *unstructured.Unstructured, folder string) error {
	affinity, found, err := unstructured.NestedMap(deployment.Object, "spec", "template", "spec", "affinity")
	if err != nil || !found {
		return fmt.Errorf("component high-availability declares no affinity: %w", err)
	}
	text, err := yaml.Marshal(affinity)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(folder, "_affinity.tpl"), templateHeader+"{{- define \"holdfast.affinity\" -}}\n"+string(text)+"{{- end -}}\n")
}

// renderWatchedNamespaces writes the binding that each watched namespace needs.
func renderWatchedNamespaces(overlay []*unstructured.Unstructured, folder string) error {
	var bindings []*unstructured.Unstructured
	for _, object := range overlay {
		if object.GetKind() == "RoleBinding" && object.GetNamespace() == "databases" {
			object.SetNamespace(mark("watchedNamespace"))
			bindings = append(bindings, object)
		}
	}
	if len(bindings) == 0 {
		return fmt.Errorf("kustomize/overlays/namespaced has no binding in the namespace databases")
	}
	return writeTemplate(folder, "watched-namespaces.yaml", "range $namespace := .Values.watchNamespaces", bindings)
}

// writeTemplate writes objects as a template, under a condition or in a loop.
func writeTemplate(folder, file, condition string, objects []*unstructured.Unstructured) error {
	var out strings.Builder
	out.WriteString(templateHeader)
	if condition != "" {
		out.WriteString("{{- " + condition + " }}\n")
	}
	for _, object := range objects {
		if object.GetKind() == "NetworkPolicy" {
			if err := openNetworkPolicy(object); err != nil {
				return err
			}
		}
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		filled := fillMarks(escapeText(string(text)))
		if left := inlineMark.FindString(filled); left != "" {
			return fmt.Errorf("%s: no value is known for the mark %s", file, left)
		}
		out.WriteString("---\n" + filled)
	}
	if condition != "" {
		out.WriteString("{{- end }}\n")
	}
	return writeFile(filepath.Join(folder, file), out.String())
}

// openNetworkPolicy marks the API server's ports.
func openNetworkPolicy(object *unstructured.Unstructured) error {
	rules, _, err := unstructured.NestedSlice(object.Object, "spec", "egress")
	if err != nil {
		return err
	}
	for _, rule := range rules {
		egress, isMap := rule.(map[string]any)
		if isMap && egress["to"] == nil && strings.Contains(fmt.Sprint(egress["ports"]), "6443") {
			egress["ports"] = []any{mark("apiServerPorts")}
			return unstructured.SetNestedSlice(object.Object, rules, "spec", "egress")
		}
	}
	return fmt.Errorf("the NetworkPolicy has no rule for the API server's ports")
}

// escapeText protects what another program reads as a template, and puts the
// release's namespace in place of the usual one.
func escapeText(text string) string {
	text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`)
	return strings.ReplaceAll(text, "holdfast-system", "{{ $.Release.Namespace }}")
}

// mark stands for what a value decides, until the text is written.
func mark(name string) string { return "@@" + name + "@@" }

// inlineMarks are values in a line, by their marks.
var inlineMarks = map[string]string{
	"image":            `{{ include "holdfast.image" . | quote }}`,
	"imagePullPolicy":  `{{ .Values.image.pullPolicy }}`,
	"replicas":         `{{ ternary 2 1 .Values.highAvailability.enabled }}`,
	"watchedNamespace": `{{ $namespace }}`,
}

// blockMarks are lists and maps that take the place of a whole line, by their
// marks; %d is its indentation.
var blockMarks = map[string]string{
	"args":                      `{{- with include "holdfast.args" . | trim }}{{ . | nindent %d }}{{ end }}`,
	"extraEnv":                  `{{- with .Values.extraEnv }}{{ toYaml . | nindent %d }}{{ end }}`,
	"apiServerPorts":            `{{- include "holdfast.apiServerPorts" . | trim | nindent %d }}`,
	"podLabels":                 `{{- with .Values.podLabels }}{{ toYaml . | nindent %d }}{{ end }}`,
	"podAnnotations":            `{{- with .Values.podAnnotations }}{{ toYaml . | nindent %d }}{{ end }}`,
	"scheduling":                `{{- with include "holdfast.scheduling" . | trim }}{{ . | nindent %d }}{{ end }}`,
	"serviceAccountAnnotations": `{{- with .Values.serviceAccountAnnotations }}{{ dict "annotations" . | toYaml | nindent %d }}{{ end }}`,
	"imagePullSecrets":          `{{- with .Values.imagePullSecrets }}{{ dict "imagePullSecrets" . | toYaml | nindent %d }}{{ end }}`,
	"resources":                 `{{- with .Values.resources }}{{ dict "resources" . | toYaml | nindent %d }}{{ end }}`,
}

var (
	inlineMark = regexp.MustCompile(`'?@@(\w+)@@'?`)
	blockMark  = regexp.MustCompile(`(?m)^( *)(?:- |resources: )?'?@@(\w+)@@'?(?:: "")?$`)
)

// fillMarks replaces the marks of a text.
func fillMarks(text string) string {
	text = blockMark.ReplaceAllStringFunc(text, func(line string) string {
		found := blockMark.FindStringSubmatch(line)
		if block, known := blockMarks[found[2]]; known {
			return fmt.Sprintf(block, len(found[1]))
		}
		return line
	})
	return inlineMark.ReplaceAllStringFunc(text, func(found string) string {
		return cmp.Or(inlineMarks[inlineMark.FindStringSubmatch(found)[1]], found)
	})
}
