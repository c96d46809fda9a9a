"""Trees: tuples, lists and dicts, one in another; what else stands in them is a leaf."""


def flatten(tree, leaves):
    """Append the leaves of a tree to a list, and give its structure, which can be hashed."""
    if type(tree) is dict:
        keys = tuple(sorted(tree))
        return dict, keys, tuple(flatten(tree[key], leaves) for key in keys)
    if type(tree) in (tuple, list):
        return type(tree), tuple(flatten(each, leaves) for each in tree)
    leaves.append(tree)
    return None


def unflatten(structure, leaves):
    """Build a tree of that structure from an iterator of leaves."""
    if structure is None:
        return next(leaves)
    kind, *keys, parts = structure
    built = [unflatten(part, leaves) for part in parts]
    return dict(zip(*keys, built, strict=True)) if keys else kind(built)
