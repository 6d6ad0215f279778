package memberset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// FirstDatabase is the database that applications connect to, and its owner.
type FirstDatabase struct {
	Database, Owner string
	// Recorded says that the data was made with these names, whatever the spec
	// says.
	Recorded bool
}

// defaultFirst is the name of the first database and of its owner where neither
// the spec nor the data says another. It is no default of the schema: a name that
// is not declared must be known as such, so that a restored cluster adopts that
// of its data.
const defaultFirst = "app"

// FindFirstDatabase is what the data says: the leader that runs on it, which has the
// names that it reports, or the volumes of a cluster that is created again. New data is
// made with what is declared.
func FindFirstDatabase(o Observation, systemIdentifier string, reported, declared FirstDatabase) FirstDatabase {
	if reported.Database != "" && reported.Owner != "" {
		return FirstDatabase{reported.Database, reported.Owner, true}
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		says := o.Volumes[n].Annotations
		if says[v1alpha1.AnnotationSystemIdentifier] != systemIdentifier || systemIdentifier == "" {
			continue
		}
		if database, owner := says[v1alpha1.AnnotationDatabase], says[v1alpha1.AnnotationOwner]; database != "" && owner != "" {
			return FirstDatabase{database, owner, true}
		}
	}
	return FirstDatabase{Database: cmp.Or(declared.Database, defaultFirst), Owner: cmp.Or(declared.Owner, defaultFirst)}
}

// VolumeAnnotations are what volumes say of it, once the data records it.
func (f FirstDatabase) VolumeAnnotations(systemIdentifier string) map[string]string {
	if systemIdentifier == "" || !f.Recorded {
		return nil
	}
	return map[string]string{v1alpha1.AnnotationDatabase: f.Database, v1alpha1.AnnotationOwner: f.Owner}
}

// DescribeDifference says how what is declared differs from the data; empty when it does
// not. A name that is not declared is that of the data.
func (f FirstDatabase) DescribeDifference(want FirstDatabase) string {
	if cmp.Or(want.Database, f.Database) == f.Database && cmp.Or(want.Owner, f.Owner) == f.Owner {
		return ""
	}
	return fmt.Sprintf("spec.bootstrap names database %q with owner %q, and the data was made with database %q and owner %q, which stay in use: set spec.bootstrap to these or remove it, and use SQL for further databases and roles",
		cmp.Or(want.Database, f.Database), cmp.Or(want.Owner, f.Owner), f.Database, f.Owner)
}

// FollowSpec takes what the spec says of the first database and the image into what is
// desired. Where it cannot be followed, what is there stays, and a Stalled fact says which
// field to correct: reason and refusal are why the image is not followed, empty if it is.
func (f FirstDatabase) FollowSpec(view *View, d *objects.Desired, want FirstDatabase, image, reason, refusal string) []condition.Fact {
	var facts []condition.Fact
	maps.Copy(d.Data, f.VolumeAnnotations(d.SystemIdentifier))
	if message := f.DescribeDifference(want); message != "" {
		facts = append(facts, StalledFact(v1alpha1.ReasonBootstrapChanged, "%s", message))
	}
	FollowImage(view, d, image)
	if reason != "" {
		facts = append(facts, StalledFact(reason, "%s", refusal))
		KeepImage(view, d)
	}
	return facts
}

// JudgeFirstDatabase says when applications are sent to what does not exist: absent
// names that, as the leader reports it.
func (j *Judgement) JudgeFirstDatabase(absent string) {
	if absent == "" {
		return
	}
	j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonDatabaseMissing,
		"the data holds no %s, which Secret %s names: create it, or, where the data was made with other names, set spec.bootstrap to them",
		absent, j.Named(objects.SuffixApp))
}
