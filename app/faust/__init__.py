"""What adapts Faust: everything here uses private names of Faust and aiokafka, whose versions are pinned (see pins)."""
