package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"
)

// maxPriceFile and maxPrice are far more than a price file needs.
const (
	maxPriceFile = 1 << 20
	maxPrice     = 1_000_000
)

// Prices are what a user pays, by a file of theirs. Holdfast knows no prices.
type Prices struct {
	currency string
	// vcpuHour and memoryHour are of a vCPU, and of a GiB of memory, for an hour; nil for no
	// price.
	vcpuHour, memoryHour *big.Rat
	// storageMonth is of a GiB for a month, by storage class.
	storageMonth map[string]*big.Rat
	// defaultClass is that of volumes whose declaration names none; empty where the file
	// does not say.
	defaultClass string
}

// ReadPrices reads a price file. Errors begin with its name, and say which field to change.
func ReadPrices(r io.Reader, name string) (*Prices, error) {
	p, err := parsePrices(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func parsePrices(r io.Reader) (*Prices, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPriceFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPriceFile {
		return nil, fmt.Errorf("it has more than %d bytes, and is no price file", maxPriceFile)
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("it is no YAML or JSON: %w", err)
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a price is exactly what is written
	if err := decoder.Decode(&fields); err != nil {
		return nil, errors.New("it has no fields: write currency, and vcpuHour, memoryGiBHour or storageGiBMonth")
	}
	p := &Prices{storageMonth: map[string]*big.Rat{}}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if err := p.setField(field, fields[field]); err != nil {
			return nil, err
		}
	}
	return p, p.check()
}

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

func (p *Prices) setField(field string, value any) (err error) {
	switch field {
	case "currency":
		if p.currency, _ = value.(string); !currencyForm.MatchString(p.currency) {
			return fmt.Errorf("currency: %v is none: write its three capital letters, such as EUR", value)
		}
	case "vcpuHour":
		p.vcpuHour, err = parsePrice(field, value, "one vCPU for one hour, such as 0.031")
	case "memoryGiBHour":
		p.memoryHour, err = parsePrice(field, value, "one GiB of memory for one hour, such as 0.0042")
	case "storageGiBMonth":
		classes, is := value.(map[string]any)
		if !is {
			return fmt.Errorf("storageGiBMonth: %v is no list of storage classes: write a price below the name of each, such as {ssd: 0.12}", value)
		}
		for _, class := range slices.Sorted(maps.Keys(classes)) {
			if p.storageMonth[class], err = parsePrice("storageGiBMonth."+class, classes[class], "one GiB for one month, such as 0.12"); err != nil {
				return err
			}
		}
	case "defaultStorageClass":
		if p.defaultClass, _ = value.(string); p.defaultClass == "" {
			return fmt.Errorf("defaultStorageClass: %v is no name: write the storage class of volumes that name none", value)
		}
	default:
		return fmt.Errorf("%s: this field is not known: write currency, vcpuHour, memoryGiBHour, storageGiBMonth or defaultStorageClass", field)
	}
	return err
}

// parsePrice reads one price, of what it says.
func parsePrice(field string, value any, of string) (*big.Rat, error) {
	number, is := value.(json.Number)
	if !is {
		return nil, fmt.Errorf("%s: %v is no number: write, without quotes, the price of %s", field, value, of)
	}
	if approximately, err := number.Float64(); err != nil || approximately < 0 || approximately > maxPrice {
		return nil, fmt.Errorf("%s: %s is not from 0 to %d: write the price of %s", field, number, maxPrice, of)
	}
	price, is := new(big.Rat).SetString(number.String())
	if !is {
		return nil, fmt.Errorf("%s: %s is no number: write the price of %s", field, number, of)
	}
	return price, nil
}

// check says what the file as a whole lacks.
func (p *Prices) check() error {
	switch {
	case p.currency == "":
		return errors.New("currency is missing: write its three capital letters, such as EUR")
	case p.vcpuHour == nil && p.memoryHour == nil && len(p.storageMonth) == 0:
		return errors.New("it has no price: write vcpuHour, memoryGiBHour or storageGiBMonth")
	case p.defaultClass != "" && p.storageMonth[p.defaultClass] == nil:
		return fmt.Errorf("defaultStorageClass: %s has no price: add it below storageGiBMonth", p.defaultClass)
	}
	return nil
}
