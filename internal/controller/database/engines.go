package database

import "github.com/holdfast-db/holdfast/api/v1alpha1"

// Engine says which kind of cluster runs the databases of an engine, and what it is
// declared as.
type Engine struct {
	// Kind of the cluster.
	Kind string
	// New makes an empty one.
	New func() v1alpha1.Cluster
	// Declare makes the spec of the cluster. It sets every field that the spec of
	// the Database has.
	Declare func(v1alpha1.DatabaseSpec) any
	// Requests are the annotations by which its clusters take requests of their own.
	Requests []string
}

// Engines are those that a Database can have.
func Engines() map[v1alpha1.DatabaseEngine]Engine {
	return map[v1alpha1.DatabaseEngine]Engine{
		v1alpha1.EnginePostgres: {
			Kind: "PostgresCluster",
			New:  func() v1alpha1.Cluster { return &v1alpha1.PostgresCluster{} },
			Declare: func(s v1alpha1.DatabaseSpec) any {
				return v1alpha1.PostgresClusterSpec{
					CommonSpec: s.CommonSpec, Version: v1alpha1.PostgresVersion(s.Version), Storage: declareStorage(s),
					Parameters: s.Parameters, Bootstrap: s.Bootstrap,
				}
			},
			Requests: []string{
				v1alpha1.AnnotationSwitchover, v1alpha1.AnnotationPromote, v1alpha1.AnnotationContinueWithOlderData, v1alpha1.AnnotationDiscardVolume,
				v1alpha1.AnnotationUpdateAgents,
			},
		},
		v1alpha1.EngineMySQL: {
			Kind: "MySQLCluster",
			New:  func() v1alpha1.Cluster { return &v1alpha1.MySQLCluster{} },
			Declare: func(s v1alpha1.DatabaseSpec) any {
				return v1alpha1.MySQLClusterSpec{
					CommonSpec: s.CommonSpec, Version: string(s.Version), Storage: declareStorage(s),
					Parameters: s.Parameters, Bootstrap: v1alpha1.MySQLBootstrap{Database: s.Bootstrap.Database, Owner: s.Bootstrap.Owner},
				}
			},
			Requests: []string{v1alpha1.AnnotationSwitchover, v1alpha1.AnnotationRecoverQuorum, v1alpha1.AnnotationUpdateAgents},
		},
	}
}

// declareStorage makes the volume of each member.
func declareStorage(s v1alpha1.DatabaseSpec) v1alpha1.StorageSpec {
	return v1alpha1.StorageSpec{Size: s.Storage, StorageClass: s.StorageClass, AutoGrow: s.AutoGrow}
}
