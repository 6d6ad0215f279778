package backups

import (
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// VolumeURL is the URL of backups on the cluster's own volume.
const VolumeURL = "file://" + agentapi.BackupsDir

// FindRemovedDestination is the URL of the object store that a cluster's backups
// went to, where its spec names none any more and does not say that they are to
// go elsewhere: then none is made, and none is dropped. It is empty where backups
// go where the spec says. A cluster whose status does not say where they went is
// judged by the newest of its own backups.
func FindRemovedDestination(c v1alpha1.Cluster, own []*v1alpha1.Backup) string {
	declared := c.Common().Backup
	if !declared.IsEnabled() || declared.Destination != nil || declared.Volume != nil {
		return ""
	}
	was := c.CommonStatus().BackupPlace
	if was == nil {
		was = findNewestPlace(own)
	}
	if was == nil || was.URL == VolumeURL {
		return ""
	}
	return was.URL
}

// findNewestPlace is where the newest backup went that was begun; nil for none.
func findNewestPlace(own []*v1alpha1.Backup) *v1alpha1.BackupPlace {
	var newest *v1alpha1.Backup
	for _, b := range own {
		if b.Status.Location != nil && isLater(b, newest) {
			newest = b
		}
	}
	if newest == nil {
		return nil
	}
	at := newest.Status.Location
	return &v1alpha1.BackupPlace{URL: at.URL, Endpoint: at.Endpoint}
}

// planPlace is where backups of a cluster go, to be recorded in its status.
// While none is made, it is where they went last.
func planPlace(c v1alpha1.Cluster, own []*v1alpha1.Backup) *v1alpha1.BackupPlace {
	declared, was := c.Common().Backup, c.CommonStatus().BackupPlace.DeepCopy()
	switch {
	case !declared.IsEnabled(), FindRemovedDestination(c, own) != "" && was != nil:
		return was
	case declared.Destination != nil:
		at := LocateInStore(declared.Destination, "")
		return &v1alpha1.BackupPlace{URL: at.URL, Endpoint: at.Endpoint}
	case FindRemovedDestination(c, own) != "":
		return findNewestPlace(own)
	}
	return &v1alpha1.BackupPlace{URL: VolumeURL}
}

// DescribeRemovedDestination says what became of a destination, and what to do
// about it.
func DescribeRemovedDestination(url string) string {
	return fmt.Sprintf("spec.backup.destination was removed, and backups went to %s: no backup is made, and none is dropped. "+
		"Declare the destination again; or declare spec.backup.volume, {} will do, to have backups on a volume of the cluster from now on; or set spec.backup.enabled to false", strings.TrimRight(url, "/"))
}

// LocateInStore makes the location of a prefix in a destination.
func LocateInStore(d *v1alpha1.BackupDestination, prefix string) *v1alpha1.BackupLocation {
	at := &v1alpha1.BackupLocation{
		URL: strings.TrimRight(d.URL, "/"), Endpoint: d.Endpoint, Region: d.Region, PathStyle: d.PathStyle, Prefix: prefix,
	}
	if d.CredentialsSecretRef != nil {
		at.CredentialsSecret = d.CredentialsSecretRef.Name
	}
	return at
}
