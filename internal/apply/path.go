package apply

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// lookupPath finds what the path names in an object's content.
func lookupPath(root any, path fieldpath.Path) (any, bool) {
	at := root
	for _, element := range path {
		next, _, found := descendInto(at, element, false)
		if !found {
			return nil, false
		}
		at = next
	}
	return at, true
}

// lookupSent is lookup in what was sent: a list's key that was left to its
// default there (the protocol of a port) matches any value.
func lookupSent(root any, path fieldpath.Path) (any, bool) {
	at := root
	for _, element := range path {
		next, _, found := descendInto(at, element, true)
		if !found {
			return nil, false
		}
		at = next
	}
	return at, true
}

// descendInto goes down one element and also says how a JSON pointer names it.
func descendInto(at any, element fieldpath.PathElement, defaultedKeys bool) (any, string, bool) {
	if element.FieldName != nil {
		fields, isMap := at.(map[string]any)
		if !isMap {
			return nil, "", false
		}
		child, found := fields[*element.FieldName]
		return child, *element.FieldName, found
	}
	items, isList := at.([]any)
	if !isList {
		return nil, "", false
	}
	if i, found := indexOf(items, element, defaultedKeys); found {
		return items[i], strconv.Itoa(i), true
	}
	return nil, "", false
}

func indexOf(items []any, element fieldpath.PathElement, defaultedKeys bool) (int, bool) {
	if element.Index != nil {
		return *element.Index, *element.Index >= 0 && *element.Index < len(items)
	}
	for i, item := range items {
		switch {
		case element.Key != nil && hasKey(item, *element.Key, defaultedKeys),
			element.Value != nil && value.Equals(*element.Value, value.NewValueInterface(item)):
			return i, true
		}
	}
	return 0, false
}

func hasKey(item any, key value.FieldList, defaultedKeys bool) bool {
	fields, isMap := item.(map[string]any)
	if !isMap {
		return false
	}
	for _, part := range key {
		have, found := fields[part.Name]
		if !found {
			if defaultedKeys {
				continue
			}
			return false
		}
		if !value.Equals(part.Value, value.NewValueInterface(have)) {
			return false
		}
	}
	return true
}

// pointerTo is the JSON pointer, in unescaped segments, of a path in an object's
// content.
func pointerTo(root any, path fieldpath.Path) ([]string, bool) {
	at, segments := root, make([]string, 0, len(path))
	for _, element := range path {
		next, segment, found := descendInto(at, element, false)
		if !found {
			return nil, false
		}
		at, segments = next, append(segments, segment)
	}
	return segments, true
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointerString is the RFC 6901 form.
func pointerString(segments []string) string {
	var out strings.Builder
	for _, s := range segments {
		out.WriteByte('/')
		out.WriteString(pointerEscapes.Replace(s))
	}
	return out.String()
}

// parsePointer is the inverse of pointerString.
func parsePointer(p string) []string {
	segments := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, s := range segments {
		segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return segments
}

// removePath takes what the path names out of an object's content, in place.
// Maps and lists that become empty stay: they may mean something.
func removePath(root any, path fieldpath.Path) any {
	if len(path) == 0 {
		return root
	}
	switch at := root.(type) {
	case map[string]any:
		name := path[0].FieldName
		if name == nil {
			return root
		}
		child, found := at[*name]
		switch {
		case !found:
		case len(path) == 1:
			delete(at, *name)
		default:
			at[*name] = removePath(child, path[1:])
		}
		return at
	case []any:
		i, found := indexOf(at, path[0], true)
		switch {
		case !found:
			return at
		case len(path) == 1:
			return slices.Delete(at, i, i+1)
		}
		at[i] = removePath(at[i], path[1:])
		return at
	}
	return root
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// showPath writes a path for people, such as .spec.ports[name="client"].port.
// List items are shown by name where they have one, else by their keys;
// contents are searched for the names.
func showPath(path fieldpath.Path, contents ...map[string]any) string {
	var out strings.Builder
	for i, element := range path {
		switch {
		case element.FieldName != nil && plainName.MatchString(*element.FieldName):
			out.WriteString("." + *element.FieldName)
		case element.FieldName != nil:
			fmt.Fprintf(&out, "[%q]", *element.FieldName)
		case element.Key != nil:
			out.WriteString("[" + showKey(path[:i+1], *element.Key, contents) + "]")
		case element.Value != nil:
			out.WriteString("[" + value.ToString(*element.Value) + "]")
		case element.Index != nil:
			fmt.Fprintf(&out, "[%d]", *element.Index)
		}
	}
	return out.String()
}

func showKey(path fieldpath.Path, key value.FieldList, contents []map[string]any) string {
	for _, content := range contents {
		if name, found := itemName(content, path); found {
			return fmt.Sprintf("name=%q", name)
		}
	}
	parts := make([]string, 0, len(key))
	for _, part := range key {
		shown, err := json.Marshal(part.Value.Unstructured())
		if err != nil {
			shown = []byte(value.ToString(part.Value))
		}
		parts = append(parts, part.Name+"="+string(shown))
	}
	return strings.Join(parts, ",")
}

// itemName is the name field of the list item that the path names.
func itemName(content map[string]any, path fieldpath.Path) (string, bool) {
	item, found := lookupPath(content, path)
	if !found {
		return "", false
	}
	fields, isMap := item.(map[string]any)
	if !isMap {
		return "", false
	}
	name, isString := fields["name"].(string)
	return name, isString && name != ""
}

// hasPrefix says whether path is prefix or lies below it.
func hasPrefix(path, prefix fieldpath.Path) bool {
	return len(path) >= len(prefix) && path[:len(prefix)].Equals(prefix)
}

// holdsPath says whether a set has the path or anything below it.
func holdsPath(set *fieldpath.Set, path fieldpath.Path) bool {
	if set == nil {
		return false
	}
	if set.Has(path) {
		return true
	}
	below := set
	for _, element := range path {
		below = below.WithPrefix(element)
	}
	return !below.Empty()
}
