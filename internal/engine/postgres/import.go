package postgres

import (
	"cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// isImporting says whether an import is recorded that is not done: clients are kept out.
func isImporting(c v1alpha1.Cluster) bool {
	st := c.CommonStatus().Import
	return st != nil && !st.Done()
}

// findService is the suffix of the Service that sends clients to a member; none while they
// are kept out. An image or a parameter that the import waits for is rolled out meanwhile.
func findService(c v1alpha1.Cluster, primary bool) string {
	switch {
	case isImporting(c):
		return ""
	case primary:
		return suffixRW
	}
	return suffixRO
}

// planImport says how the first database is filled from another server; nil where
// nothing is to be filled.
func (j *judgement) planImport() *engine.Import {
	declared, st := j.c.Spec.Bootstrap.Import, j.c.Status.Import
	if st.Done() || declared == nil && st == nil {
		return nil
	}
	o := j.Observed
	leaving, count := memberset.FindLeaving(j.Set, o)
	p := &engine.Import{
		Source: declared, Leaving: leaving,
		Living:  o.StatefulSet != nil || j.c.Status.SystemIdentifier != "" || len(o.Volumes) > count,
		Opened:  j.c.Status.RolledOut != nil,
		Program: containerName, Image: cmp.Or(memberset.RunningImage(j.Set, o.Pods[j.lead.leader]), j.Desired.Image), User: j.User,
		Port: Port, Secret: j.Named(objects.SuffixApp),
	}
	for n := range j.Desired.Count {
		p.Hosts = append(p.Hosts, j.PodHost(j.PodName(n)))
	}
	if m := j.lead.status; m != nil && j.findPrimary() != "" {
		p.Serving = j.Desired.Minted.Complete && m.Details[postgresapi.DetailDatabase] != "" && m.Details[postgresapi.DetailAbsent] == ""
	}
	return p
}
