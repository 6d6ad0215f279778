package engine

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// specFields say which field of a cluster's spec a field of an owned object is
// made of, by the kind of the object; the first that matches counts.
var specFields = []struct {
	kind   string
	object *regexp.Regexp
	spec   string
}{
	{"StatefulSet", regexp.MustCompile(`^spec\.template\.spec\.containers\[0\]\.(resources|image)`), "spec.$1"},
	{"StatefulSet", regexp.MustCompile(`^spec\.template\.spec\.(nodeSelector|affinity|tolerations|topologySpreadConstraints|priorityClassName|imagePullSecrets)`), "spec.$1"},
	{"StatefulSet", regexp.MustCompile(`^spec\.template\.(metadata\.)?labels`), "spec.podLabels"},
	{"StatefulSet", regexp.MustCompile(`^spec\.template\.(metadata\.)?annotations`), "spec.podAnnotations"},
	{"StatefulSet", regexp.MustCompile(`^spec\.replicas`), "spec.replicas"},
	{"ServiceAccount", regexp.MustCompile(`^metadata\.annotations`), "spec.serviceAccount.annotations"},
	{"NetworkPolicy", regexp.MustCompile(`^spec\.ingress\[0\]\.from`), "spec.network.from"},
	{"NetworkPolicy", regexp.MustCompile(`^spec\.ingress\[1\]\.from`), "spec.network.metricsFrom"},
	{"PersistentVolumeClaim of backups", regexp.MustCompile(`^spec\.resources(\.requests(\[storage\]|\.storage)?)?`), "spec.backup.volume.size"},
	{"PersistentVolumeClaim of backups", regexp.MustCompile(`^spec\.storageClassName`), "spec.backup.volume.storageClass"},
	{"PersistentVolumeClaim", regexp.MustCompile(`^spec\.resources(\.requests(\[storage\]|\.storage)?)?`), "spec.storage.size"},
	{"PersistentVolumeClaim", regexp.MustCompile(`^spec\.storageClassName`), "spec.storage.storageClass"},
	{"Job of a drill", regexp.MustCompile(`^spec\.template\.spec\.containers\[0\]\.resources`), "spec.backup.verify.resources"},
	{"Job", regexp.MustCompile(`^spec\.template\.spec\.containers\[0\]\.resources`), "spec.backup.resources"},
	{"Job", regexp.MustCompile(`^spec\.template\.spec\.(nodeSelector|tolerations|imagePullSecrets)`), "spec.$1"},
}

// objectRole is what an object is for, where its kind alone does not say which fields it
// is made of.
func objectRole(kind, name string) string {
	switch {
	case kind == "PersistentVolumeClaim" && strings.HasSuffix(name, v1alpha1.SuffixBackups):
		return kind + " of backups"
	case kind == "Job" && strings.Contains(name, v1alpha1.InfixDrill):
		return kind + " of a drill"
	}
	return kind
}

// specField is the field of the spec that an owned object's field is made of; empty
// for none.
func specField(kind, name, field string) string {
	for _, f := range specFields {
		if at := f.object.FindStringIndex(field); at != nil && (f.kind == objectRole(kind, name) || f.kind == kind && objectRole(kind, name) == kind) {
			return f.object.ReplaceAllString(field[:at[1]], f.spec) + field[at[1]:]
		}
	}
	return ""
}

// DescribeInvalid says of an owned object that the API server does not take which
// field of the spec is wrong, and why.
func DescribeInvalid(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return "the API server refuses an object: " + err.Error()
	}
	details := status.Status().Details
	var says []string
	for _, cause := range details.Causes {
		if text := describeCause(details, cause); len(says) == 0 || says[len(says)-1] != text {
			says = append(says, text)
		}
	}
	return strings.Join(says, "; ")
}

// pattern is the regular expression that the API server adds to what it says in
// words.
var pattern = regexp.MustCompile(`,? regex used for validation is '.*?'(\)|$)`)

func describeCause(details *metav1.StatusDetails, cause metav1.StatusCause) string {
	object := details.Kind + " " + details.Name
	cause.Message = pattern.ReplaceAllString(cause.Message, "$1")
	if field := specField(details.Kind, details.Name, cause.Field); field != "" {
		return fmt.Sprintf("%s cannot be used for %s: %s: change %s", field, object, cause.Message, field)
	}
	return fmt.Sprintf("the API server refuses %s of %s: %s", cause.Field, object, cause.Message)
}

// What admission says of an object that it does not let in.
var (
	forbidden   = regexp.MustCompile(`^(?:.*?: )?\S+ "[^"]*" is forbidden: `)
	overQuota   = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$`)
	wantsLimits = regexp.MustCompile(`failed quota: ([^:]+): must specify (.*)$`)
	noPriority  = regexp.MustCompile(`no PriorityClass with name (\S+) was found`)
	outOfLimits = regexp.MustCompile(`(?:maximum|minimum|max|min)\b.*\bper (?:Container|Pod|PersistentVolumeClaim)`)
)

// DescribeForbidden says what keeps an object from being made, and what to change.
func DescribeForbidden(message string) string {
	text := forbidden.ReplaceAllString(message, "")
	switch {
	case overQuota.MatchString(text):
		m := overQuota.FindStringSubmatch(text)
		return fmt.Sprintf("ResourceQuota %s is used up (requested %s, used %s, limited to %s): raise the quota, or lower %s", m[1], m[2], m[3], m[4], quotaFields(m[2], sizeField(message)))
	case wantsLimits.MatchString(text):
		m := wantsLimits.FindStringSubmatch(text)
		return fmt.Sprintf("ResourceQuota %s wants every container to declare %s: set it in spec.resources, and let a LimitRange give defaults to the others", m[1], m[2])
	case noPriority.MatchString(text):
		name := noPriority.FindStringSubmatch(text)[1]
		return fmt.Sprintf("spec.priorityClassName %q does not exist: create the PriorityClass, or name one that does", name)
	case outOfLimits.MatchString(text):
		field := "spec.resources"
		if strings.Contains(text, "per PersistentVolumeClaim") {
			field = sizeField(message)
		}
		return fmt.Sprintf("a LimitRange of the namespace forbids it: %s: change %s, or the LimitRange", text, field)
	case strings.Contains(text, "violates PodSecurity"):
		return text + ": the namespace's Pod Security level must allow what members need; they run under restricted"
	}
	return text + ": check quotas, admission policies and the operator's RBAC"
}

// sizeField is the field of the spec that the size of a forbidden claim comes of.
func sizeField(message string) string {
	if strings.Contains(message, v1alpha1.SuffixBackups+`" is forbidden: `) {
		return "spec.backup.volume.size"
	}
	return "spec.storage.size"
}

// quotaFields are the fields of the spec that ask for what a quota counts.
func quotaFields(requested, size string) string {
	var fields []string
	for _, f := range []struct{ counts, field string }{
		{"persistentvolumeclaims", "spec.replicas"}, {"pods", "spec.replicas"}, {"storage", size},
		{"cpu", "spec.resources"}, {"memory", "spec.resources"},
	} {
		if strings.Contains(requested, f.counts) && (len(fields) == 0 || fields[len(fields)-1] != f.field) {
			fields = append(fields, f.field)
		}
	}
	if len(fields) == 0 {
		return "what the spec asks for"
	}
	return strings.Join(fields, " or ")
}
