"""Names that LeRobot imports for its augmentations, which this check does not use."""


class Transform: ...


class functional: ...
