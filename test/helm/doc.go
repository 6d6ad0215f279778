// Package helm tests the Helm chart: it renders what the kustomizations render,
// refuses bad values, and loses no data.
package helm
