package controller

import (
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// onVolume is the URL of backups on the cluster's own volume.
const onVolume = "file://" + memberapi.BackupsDir

// removedDestination is the URL of the object store that a cluster's backups
// went to, where its spec names none any more and does not say that they are to
// go elsewhere: then none is made, and none is dropped. It is empty where backups
// go where the spec says. A cluster whose status does not say where they went is
// judged by the newest of its own backups.
func removedDestination(c v1alpha1.Cluster, own []*v1alpha1.Backup) string {
	declared := c.Common().Backup
	if !declared.On() || declared.Destination != nil || declared.Volume != nil {
		return ""
	}
	was := c.CommonStatus().BackupPlace
	if was == nil {
		was = placeOfNewest(own)
	}
	if was == nil || was.URL == onVolume {
		return ""
	}
	return was.URL
}

// placeOfNewest is where the newest backup went that was begun; nil for none.
func placeOfNewest(own []*v1alpha1.Backup) *v1alpha1.BackupPlace {
	var newest *v1alpha1.Backup
	for _, b := range own {
		if b.Status.Location != nil && later(b, newest) {
			newest = b
		}
	}
	if newest == nil {
		return nil
	}
	at := newest.Status.Location
	return &v1alpha1.BackupPlace{URL: at.URL, Endpoint: at.Endpoint}
}

// backupPlace is where backups of a cluster go, to be recorded in its status.
// While none is made, it is where they went last.
func backupPlace(c v1alpha1.Cluster, own []*v1alpha1.Backup) *v1alpha1.BackupPlace {
	declared, was := c.Common().Backup, c.CommonStatus().BackupPlace.DeepCopy()
	switch {
	case !declared.On(), removedDestination(c, own) != "" && was != nil:
		return was
	case declared.Destination != nil:
		at := inStore(declared.Destination, "")
		return &v1alpha1.BackupPlace{URL: at.URL, Endpoint: at.Endpoint}
	case removedDestination(c, own) != "":
		return placeOfNewest(own)
	}
	return &v1alpha1.BackupPlace{URL: onVolume}
}

// removedMessage says what became of a destination, and what to do about it.
func removedMessage(url string) string {
	return fmt.Sprintf("spec.backup.destination was removed, and backups went to %s: no backup is made, and none is dropped. "+
		"Declare the destination again; or declare spec.backup.volume, {} will do, to have backups on a volume of the cluster from now on; or set spec.backup.enabled to false", strings.TrimRight(url, "/"))
}
